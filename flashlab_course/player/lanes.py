"""The player of a run of gpu/simt.py: the lanes of a block's warps, who waits at a barrier, what a load moves,
and what is added in shared memory.

    play_lanes(launch(two_paths, 1, 32)(X, 32, 16, 3))
"""

from itertools import accumulate
from math import prod
from typing import NamedTuple

from flashlab_course.player.page import OTHER, Player
from flashlab_course.player.scene import LINE, Scene

WIDTH, LEFT, CELL = 440, 50, 9         # pixels: the picture, its names, a lane
WARPS, LINES, STOPS = 4, 600, 5        # at most
LANES, SECTOR, NUMBER = 32, 32, 4      # of a warp; bytes of a sector, and of a number
KEYS = """<span>Space plays; ← → step, with Shift to the next event; Home, End</span>
<span><b class="moving"></b>works</span><span><b class="kept"></b>waits at the barrier</span>
<span><b class="off"></b>idle, and its time is paid for</span>"""
MEMORY = "<span>Memory: a box is a sector of 32 bytes. Pale: moved. Full: used.</span>"
SHARED = """<span>Shared memory: a box is a number. Full: written in this step.</span>
<span><b class="stored"></b>added to it</span>"""


class Tick(NamedTuple):
    """Every warp that does not wait has taken a line."""

    steps: dict            # warp -> the Step that it took or at which it waits; None once it has ended
    waits: set             # the warps that wait at the barrier
    kind: str              # of the event that the words tell
    words: str

    def working(self):
        return [step for warp, step in self.steps.items() if step and warp not in self.waits]


def play_lanes(trace, block=0):
    """A Player of one block of a simt.Trace. Raises: ValueError for more warps and lines than one can follow"""
    warps = [trace.warp(block, warp) for warp in range(-(-prod(trace.block) // LANES))]
    if len(warps) > WARPS or sum(map(len, warps)) > LINES:
        raise ValueError(f"play_lanes shows at most {WARPS} warps and {LINES} lines, got {len(warps)} warps")
    ticks = clock(warps)
    scene = Scene(f"{trace.kernel}, block {block}", OTHER, WIDTH)
    scene.height = draw_memory(scene, ticks, draw_shared(scene, ticks, draw_warps(scene, ticks) + 10))
    scene.listing(trace.lines, [{step.line for step in tick.steps.values() if step} for tick in ticks],
                  [tick.words for tick in ticks])
    kinds = [tick.kind for tick in ticks]
    scene.moved = list(range(len(ticks)))
    scene.tiles = [n for n, kind in enumerate(kinds) if kind != (kinds + [None])[n + 1]]
    stops = [(kinds.index(kind), kind) for kind in dict.fromkeys(kinds) if kind]
    keys = KEYS + MEMORY + SHARED * any(step.shared for warp in warps for step in warp)
    return Player([scene], keys=keys, units=("line", "event"), stops=stops[:STOPS], told=True)


def clock(warps):
    """The Ticks of the warps' steps. A warp that comes to a barrier waits there until the last one comes."""
    at, ticks, waits = [0] * len(warps), [], set()
    while any(n < len(steps) for n, steps in zip(at, warps, strict=True)):
        now = {warp: (steps[n:] or [None])[0] for warp, (n, steps) in enumerate(zip(at, warps, strict=True))}
        alive = {warp: step for warp, step in now.items() if step}
        there = {warp for warp, step in alive.items() if step.source.strip().startswith("syncthreads()")}
        opens = there == alive.keys()
        words = told(alive, there - waits, opens, ticks[-1].kind if ticks else "")
        ticks.append(Tick(now, set() if opens else there, *words))
        waits = set() if opens else there
        at = [n + (warp not in waits) for warp, n in enumerate(at)]
    return ticks


def told(steps, come, opens, before):
    """(kind, words) of what is most worth seeing in a tick. come: who has just come to the barrier"""
    adds = "".join(f"Warp {warp} adds shared[{min(added)}:{max(added) + 1}] to shared[{min(to)}:{max(to) + 1}]. "
                   for warp, step in steps.items() for added, to in [pairs(step)] if added)
    names = f"Warp{'s' * (len(come) > 1)} {' and '.join(', '.join(map(str, sorted(come))).rsplit(', ', 1))}"
    moves = [(warp, one) for warp, step in steps.items() for one in step.accesses]
    if opens:
        last = f"{names} came last" if len(come) < len(steps) else "All warps come at once"
        return "the barrier opens", f"{last}: the barrier opens, and every warp goes on."
    if come:
        return "a warp waits", f"{adds}{names} must wait at the barrier until every warp of the block has come."
    if moves:
        warp, one = moves[0]
        used, moved = NUMBER * len(set(one.offsets)), SECTOR * one.sectors
        again = "The lanes are together again. " * before.startswith("only")
        return f"{one.kind}: {used} of {moved} bytes used", (
            f"{again}Warp {warp} {one.kind}s {used} bytes of {one.array}. They lie in {one.sectors} "
            f"sector{'s' * (one.sectors > 1)}, so {moved} bytes move.")
    for warp, active in ((warp, step.active) for warp, step in steps.items() if not all(step.active)):
        kind = f"only {sum(active)} lane{'s' * (sum(active) > 1)}, from lane {active.index(True)} on"
        return kind, f"In warp {warp}, {kind}, take this line. The others wait until it is done."
    return "", "Each warp that does not wait takes a line, with all of its lanes."


def draw_warps(scene, ticks):
    """A row for each warp, a cell for each lane; and how many lanes work in this step. Those that wait do not."""
    right = LEFT + CELL * LANES + 8
    for warp in ticks[0].steps:
        y = (LINE + 5) * warp
        steps = [(tick.steps[warp], warp in tick.waits) for tick in ticks]
        scene.text(0, y + 11, "small strong", f"warp {warp}")
        for lane in range(LANES):
            scene.rect(LEFT + CELL * lane, y, CELL - 1, LINE, [
                "block off" if not step or not step.active[lane] else "block" if waits else "block new"
                for step, waits in steps])
        scene.text(right, y + 11, "small", ["has ended" if not step else "waits" if waits else f"line {step.line}"
                                            for step, waits in steps])
    y += LINE + 14
    lanes = [[lane and warp not in tick.waits for warp, step in tick.steps.items() if step for lane in step.active]
             for tick in ticks]
    shares = [sum(tick) / len(tick) for tick in lanes]
    scene.text(0, y + 11, "small", "at work")
    scene.rect(LEFT, y + 3, CELL * LANES, 8, "rail")
    scene.rect(LEFT, y + 3, [round(CELL * LANES * share) for share in shares], 8, "live")
    scene.text(right, y + 11, "small", [f"{share:.0%} of lanes" for share in shares])
    return y + LINE


def pairs(step):
    """The numbers of shared memory that a step only reads, if it also writes some, and those that it writes."""
    read, to = ({offset // NUMBER for one in step.shared if one.kind == kind for offset in one.offsets}
                for kind in ("load", "store"))
    return read - to if to else set(), to


def draw_shared(scene, ticks, y):
    """A box for each number of shared memory that is written, 32 in a row."""
    moves = [[pairs(step) for step in tick.working()] for tick in ticks]
    added, to = ([set().union(*(pair[which] for pair in tick)) for tick in moves] for which in (0, 1))
    full = list(accumulate(to, set.union))
    for n in sorted(full[-1]):
        scene.rect(LEFT + CELL * (n % LANES), y + (LINE + 5) * (n // LANES), CELL - 1, LINE, [
            "block new" if n in new else "written" if n in old else "block" if n in kept else "block off"
            for new, old, kept in zip(to, added, full, strict=True)])
    scene.text(0, y + 11, "small strong", "shared" if full[-1] else "")
    return y + (LINE + 5) * -(-len(full[-1]) // LANES)


def draw_memory(scene, ticks, y):
    """A row for each tensor, a box for each of its sectors: what the lines of this tick move, and use."""
    moves = [[one for step in tick.working() for one in step.accesses] for tick in ticks]
    for name in dict.fromkeys(one.array for tick in moves for one in tick):
        used = [{offset for one in tick if one.array == name for offset in one.offsets} for tick in moves]
        count = max(map(max, filter(None, used))) // SECTOR + 1
        wide = CELL * LANES / max(count, LANES)
        scene.text(0, y + 11, "small strong", name)
        for sector in range(count):
            bytes_used = [NUMBER * sum(offset // SECTOR == sector for offset in tick) for tick in used]
            scene.rect(LEFT + wide * sector, y, wide - 1, LINE, ["block" if n else "block off" for n in bytes_used])
            scene.rect(LEFT + wide * sector, y, [round((wide - 1) * n / SECTOR, 1) for n in bytes_used], LINE, "live")
        scene.text(LEFT + CELL * LANES + 8, y + 11, "small", [
            f"{NUMBER * len(tick)} of {SECTOR * len({offset // SECTOR for offset in tick})} bytes" if tick else ""
            for tick in used])
        y += LINE + 5
    return y
