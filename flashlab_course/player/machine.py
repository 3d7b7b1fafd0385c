"""The player of a run of gpu/warps.py: what every slot holds, what every barrier counts, and the lines of the warps.

    play_warps(simulate({"producer": producer(K, V, 8), "consumer": consumer(K, V, 8)}))
"""

import linecache
import re
from itertools import accumulate

from flashlab_course.player.lines import Source
from flashlab_course.player.page import OTHER, Player
from flashlab_course.player.scene import LINE, Scene
from flashlab_course.player.stops import stops_of

WIDTH, HEAD = 540, 152                 # pixels of the picture, and of the names at its left
COLUMNS = (0, 62, 170, 322)            # slot, what it holds, its barrier full, its barrier free
KEYS = """<span>Space plays; ← → step, with Shift to the next event; Home, End</span>
<span><b class="kept"></b>a tile is there</span><span><b class="moving"></b>a product reads it, or is queued</span>
<span><b class="copy"></b>copy</span><span><b class="product"></b>product</span>
<span><b class="softmax"></b>softmax</span>"""
LOOKS = {"TMA": "copy", "tensor cores": "product", "softmax": "softmax"}       # in the figures' colours, too


def play_warps(machine):
    """A Player of a Machine's run. It opens at the end where the run went wrong, else at the start.

    Raises: ValueError for a machine that has not run
    """
    if not machine.moments:
        raise ValueError("machine must have run, as simulate returns it; this one holds no moments")
    scene = Scene("one SM: " + ", ".join(one.name for one in machine.warps), OTHER, WIDTH)
    bottom = draw_waits(scene, machine, draw_slots(scene, machine.moments, 0) + 8)
    scene.height = draw_units(scene, machine, bottom + 8)
    stops = stops_of(machine)
    draw_programs(scene, machine, {step: words for step, _, words in stops})
    steps = len(machine.moments)
    scene.moved = list(range(steps))
    scene.tiles = [n for n in range(steps - 1) if machine.moments[n].time < machine.moments[n + 1].time] + [steps - 1]
    return Player([scene], steps - 1 if machine.error else 0, keys=KEYS, units=("line", "event"),
                  stops=[(step, name) for step, name, _ in stops])


def draw_slots(scene, moments, y):
    """A row for each slot, with those of its two mbarriers that count: their phase, and what ends it."""
    moving = {name for now in moments for name, state in now.barriers.items() if state != moments[-1].barriers[name]}
    kinds = [kind for kind in ("full", "free") if any(f"_{kind}[" in name for name in moving)]
    for x, head in zip(COLUMNS, ("slot", "holds", *(f"{kind}: phase" for kind in kinds)), strict=False):
        scene.text(x, y + LINE, "small strong", head)
    for name in moments[-1].slots:
        y += LINE + 3
        states = [moment.slots.get(name, (None, None, [])) for moment in moments]
        looks = ["block new" if reads else "block" if holds and not comes else "block off"
                 for holds, comes, reads in states]
        scene.rect(COLUMNS[1] - 16, y + 4, 11, 11, looks)
        scene.text(0, y + LINE, "small", name)
        scene.text(COLUMNS[1], y + LINE, "small", [f"{comes} on its way" if comes else holds or "nothing"
                                                   for holds, comes, _ in states])
        for x, kind in zip(COLUMNS[2:], kinds, strict=False):
            states = [moment.barriers.get(name.replace("_s[", f"_{kind}[")) for moment in moments]
            new = (0, 1, 0) if kind == "full" else next(filter(None, states))
            scene.text(x, y + LINE, "small", [phase_in_words(state or new) for state in states])
    return y + LINE


def phase_in_words(barrier):
    """'3; to come: 1 tile' for a barrier in phase 3."""
    phase, arrivals, tiles = barrier
    parts = [f"{n} {what}{'s' * (n > 1)}" for n, what in ((arrivals, "arrival"), (tiles, "tile")) if n]
    return f"{phase}; to come: {', '.join(parts)}"


def draw_waits(scene, machine, y):
    """A row for each named barrier: who has come; and for each program: its colour in the source, what it waits for."""
    needs = dict(sorted(request.arguments for _, request in machine.requests if request.kind in ("sync", "arrive")))
    rows = {f"named barrier {n}": [f"{moment.named.get(n, (0,))[0]} of {needs[n]} threads have come"
                                   for moment in machine.moments] for n in needs}
    for n, one in enumerate(machine.warps):
        scene.rect(HEAD - 17, y + (LINE + 1) * (len(needs) + n) + 4, 11, 11, f"block new warp{n}")
        waits = (moment.waits[one.name].partition(";")[0] for moment in machine.moments)
        rows[one.name] = [f"waits for {what}" if what else "runs" for what in waits]
    for name, words in rows.items():
        scene.text(0, y + LINE, "small strong", name)
        scene.text(HEAD, y + LINE, "small", words)
        y += LINE + 1
    return y


def draw_units(scene, machine, y):
    """When each unit has worked so far: a row for each, a bar for each span, with its tile's name once it has ended."""
    units = [unit for what in LOOKS for unit in sorted({span.unit for span in machine.spans}) if unit.startswith(what)]
    scale = (WIDTH - HEAD) / max((span.end for span in machine.spans), default=1)
    for n, unit in enumerate(units):
        scene.text(0, y + (LINE + 1) * n + 11, "small", unit)
        scene.rect(HEAD, y + (LINE + 1) * n, WIDTH - HEAD, LINE, "rail")
    for span in machine.spans:
        look = next(look for unit, look in LOOKS.items() if span.unit.startswith(unit))
        lengths = [max(0, min(moment.time, span.end) - span.start) for moment in machine.moments]
        place = HEAD + span.start * scale, y + (LINE + 1) * units.index(span.unit) + 1
        scene.add("rect", *place, [round(one * scale, 1) for one in lengths], LINE - 2, look)
        name = span.name.replace(" ", "")              # K2, or the number of a block
        room = (span.end - span.start) * scale - 5 * len(name)
        scene.text(place[0] + room / 2, place[1] + 9, "on", [name * (room > 1 and n == max(lengths)) for n in lengths])
    return y + (LINE + 1) * len(units)


def draw_programs(scene, machine, see):
    """The source of every program and the lines at which warps are; what has just happened. see: step -> what to see"""
    moments, last = machine.moments, len(machine.moments) - 1
    begun = (moment.what.partition(": ")[0] for moment in moments)
    actors = list(accumulate(begun, lambda before, who: who if who in moments[0].lines else before))
    lit = [{line: f"line now{' acts' * (name == who)} warp{n}" for n, (name, line) in
            sorted(enumerate(moment.lines.items()), key=lambda one: one[1][0] == who)}       # who acts colours the line
           for moment, who in zip(moments, actors, strict=True)]
    ran = (code for moment in moments for code, _ in moment.lines.values() if code)
    codes = {*(one.program.gi_code for one in machine.warps), *ran}
    for code in sorted(codes, key=lambda code: (code.co_filename, code.co_firstlineno)):
        for number in Source(code.co_filename).shown(code.co_firstlineno):
            looks = [one.get((code, number), "line") for one in lit]
            text = linecache.getline(code.co_filename, number).rstrip()
            scene.add("code", look=looks, text=re.sub(" {3,}# ", "  # ", text), number=number)
    looks = ["status look" if n in see else "status" for n in range(last)]
    whats = ["deadlock" if moment.what.startswith("deadlock: ") else moment.what for moment in moments]
    said = [f"time {moment.time:,}: {whats[n]}\n{see.get(n, '')}".strip() for n, moment in enumerate(moments)]
    scene.add("status", look=[*looks, "status bad" if machine.error else "status"], text=said)
