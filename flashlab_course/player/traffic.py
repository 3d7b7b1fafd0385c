"""Traffic that fills up: the bytes of each tensor so far beside dashed boxes, and a sentence for each step."""

from collections import Counter
from itertools import accumulate, pairwise

from flashlab.ladder import rung
from flashlab_course.player.page import WIDEST, Player
from flashlab_course.player.recording import Step
from flashlab_course.player.scene import Scene, bytes_text

LABEL, ROW, BAR = 24, 26, 8            # pixels: a tensor's name, from one tensor to the next, the height of a bar
KEYS = """<span>Space plays; ← → step, with Shift by tile; Home, End</span>
<span><b style="background: color-mix(in srgb, var(--ink) 72%, var(--paper))"></b>read</span>
<span><b class="stored"></b>written</span><span><b class="moving"></b>grows now</span>
<span><b style="border-style: dashed"></b>the bytes to compare with</span>"""


def play_traffic(*runs):
    """A Player of (recording, formula) pairs side by side. formula: {name of a tensor: (bytes read, bytes written)}"""
    totals = Counter()
    for n, (recording, _) in enumerate(runs):
        for kind, name, _, nbytes in sum(map(_moved, [Step(0, 0), *recording.steps], recording.steps), []):
            totals[n, kind, name] += nbytes
    longest = max(*totals.values(), *(nbytes for _, formula in runs for says in formula.values() for nbytes in says))
    size = min(WIDEST, 670 / len(runs)), 24 + ROW * max(len(formula) for _, formula in runs)
    return Player([_filling(*run, longest, *size) for run in runs], keys=KEYS)


def _filling(recording, formula, longest, width, height):
    pairs = pairwise([Step(0, 0), *recording.steps])
    steps, moved = zip(*((step, parts) for before, step in pairs if (parts := _moved(before, step))), strict=True)
    scene = Scene(recording.title, rung(recording.rung).color, width, height)
    scene.moved = list(accumulate(sum(one[-1] for one in parts) for parts in moved))
    where = [step.tile or n for n, step in enumerate(steps)]
    scene.tiles = [n for n, here in enumerate(where) if where[n + 1:n + 2] != [here]]
    total = bytes_text(scene.moved[-1])
    scene.text(0, 12, "small strong", [*(f"{bytes_text(n)} of {total}" for n in scene.moved[:-1]), f"done: {total}"])
    unit, y = (width - LABEL) / longest, 24
    for name, (read, written) in formula.items():
        scene.text(0, y + 13, "name", name)
        for top, kind, look, nbytes in ((y, "load", "read", read), (y + BAR + 2, "store", "written", written)):
            grows = [sum(one[-1] for one in parts if one[:2] == (kind, name)) for parts in moved]
            looks = ["live" if more else look for more in grows]
            scene.rect(LABEL, top, [round(unit * n, 1) for n in accumulate(grows)], BAR, looks)
            scene.rect(LABEL, top, unit * nbytes, BAR, "formula")
        y += ROW
    every, times = Counter(one for parts in moved for one in parts), Counter()
    scene.add("status", look="told", text=[_sentence(parts, times, every) for parts in moved])
    return scene


def _moved(before, step):
    """(kind, tensor, which rows, bytes) of what a step moves; outside kernels an operation loads a tensor once."""
    if step.moves:
        first = max(one.rows[0] for one in step.moves)         # K, loaded whole, comes with an operation's first rows
        return [(one.kind, one.name, f"[{start}:{stop}]", nbytes * (stop - start) // shape[0])
                for one in step.moves for start, stop in [one.rows] for shape, nbytes in [step.hbm[one.name]]
                if start == first or not step.ops]
    whole = [("load", name) for name in step.uses if step.read > before.read]
    whole += [("store", name) for name in step.sets if step.written > before.written]
    return [(kind, name, "", step.hbm[name][1]) for kind, name in whole if name in step.hbm]


def _sentence(parts, times, every):
    """'K[8:12] is loaded: time 2 of 4.'"""
    times.update(parts)
    which = {one: f"time {times[one]} of {every[one]}" if every[one] > 1 else "once" for one in parts}
    sentences = (f"{one[1]}{one[2]} is {one[0].rstrip('e')}ed: {when}." for one, when in which.items())
    return " ".join(sentences)
