"""A recording as a Scene: the parts, one below the other."""

from flashlab.ladder import find
from flashlab_course.player.parts import Chip, Code, Flow, Grid, Numbers, Traffic
from flashlab_course.player.ring import Ring
from flashlab_course.player.ring_picture import ring_picture
from flashlab_course.player.scene import Scene, Words, bytes_text

OTHER = "#5A4FCF"                      # the colour of what is no rung: a function of the learner's, mostly
WORDS = Words(
    "Tensors in HBM and tiles on chip", "line", "tile",
    (("moving", "moves or is made in this line"), ("kept", "on chip, or visited before"), ("stored", "stored")),
    "all have moved about as many bytes", (350, 700))


def picture(recording, total=0, mark=None, scale=1.0):
    """The Scene of a recording, or of a ring.

    total   the bytes, of a ring the time, at which bars end
    mark    (name, index) of an element to point at
    scale   less than 1 where several stand side by side
    """
    if isinstance(recording, Ring):
        return ring_picture(recording, total, scale)
    rung = find(recording.rung)
    scene = Scene(recording.title, rung.color if rung else OTHER, WORDS)
    tiled = any(step.tile for step in recording.steps)
    hbm = (Grid if tiled else Flow)(scene, recording, Traffic.height, mark, scale)
    traffic = Traffic(scene, recording, 0, max(total, recording.total))
    chip = Chip(scene, recording, hbm.bottom + 6, hbm.row)
    numbers = Numbers(scene, recording, chip.bottom + 6)
    parts = [traffic, hbm, chip, numbers, Code(scene, recording)]
    scene.height = numbers.bottom
    for n, step in enumerate(recording.steps):
        frame = {}
        for part in parts:
            part.show(n, step, frame)
        scene.frames.append(frame)
        scene.moved.append(step.read + step.written)
    scene.summary = f"{len(scene.frames)} lines, {bytes_text(scene.moved[-1])}"
    scene.tiles = _ends([(step.tile, step.phase, step.head) if tiled else n for n, step in enumerate(recording.steps)])
    return scene


def _ends(where):
    """The last of each run of equal values."""
    return [n for n in range(len(where)) if n + 1 == len(where) or where[n] != where[n + 1]]
