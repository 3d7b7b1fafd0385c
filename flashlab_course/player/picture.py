"""A recording as a Scene: the parts, one below the other."""

from flashlab.ladder import find
from flashlab_course.player.parts import Chip, Code, Numbers, Traffic
from flashlab_course.player.scene import Scene
from flashlab_course.player.tensors import Tensors

OTHER = "#5A4FCF"                      # the colour of what is no rung: a function of the learner's, mostly
WIDEST = 372                           # pixels


def picture(recording, total=0, mark=None, scale=1.0):
    """The Scene of a recording.

    total   the bytes at which bars end
    mark    (name, index) of an element to point at
    scale   less than 1 where several stand side by side
    """
    rung = find(recording.rung)
    scene = Scene(recording.title, rung.color if rung else OTHER, WIDEST * scale)
    tensors = Tensors(scene, recording, Traffic.height, mark, scale)
    traffic = Traffic(scene, max(total, recording.total))
    chip = Chip(scene, recording, tensors.bottom + 6, tensors.row)
    numbers = Numbers(scene, recording, chip.bottom + 6)
    scene.height = numbers.bottom
    parts = traffic, tensors, chip, numbers, Code(scene, recording)
    for n, step in enumerate(recording.steps):
        frame = {}
        for part in parts:
            part.show(n, step, frame)
        scene.frames.append(frame)
        scene.moved.append(step.read + step.written)
    tiled = any(step.tile for step in recording.steps)
    where = [(step.tile, step.phase, step.head) if tiled else n for n, step in enumerate(recording.steps)]
    scene.tiles = [n for n, here in enumerate(where) if where[n + 1:n + 2] != [here]]
    return scene
