"""A recording as a Scene: the parts, one below the other."""

from flashlab.ladder import find
from flashlab.player.parts import Chip, Code, Flow, Grid, Numbers, Traffic
from flashlab.player.scene import Scene

OTHER = "#5A4FCF"                      # the colour of what is no rung: a function of the learner's, mostly


def picture(recording, total=0, mark=None, scale=1.0):
    """The Scene of a recording.

    total   the bytes at which the traffic bars end
    mark    (name, index) of an element to point at
    scale   less than 1 where several stand side by side
    """
    rung = find(recording.rung)
    scene = Scene(recording.title, rung.color if rung else OTHER)
    tiled = any(step.tile for step in recording.steps)
    hbm = (Grid if tiled else Flow)(scene, recording, Traffic.height, mark, scale)
    traffic = Traffic(scene, recording, 0, max(total, recording.read, recording.written))
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
    scene.tiles = _ends([(step.tile, step.phase, step.head) if tiled else n for n, step in enumerate(recording.steps)])
    return scene


def _ends(where):
    """The last of each run of equal values."""
    return [n for n in range(len(where)) if n + 1 == len(where) or where[n] != where[n + 1]]
