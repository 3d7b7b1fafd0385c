"""The player of a ring of ranks: blocks of keys travel, queries stay, and the scores fill up.

    play_ring(log["runs"]["all"], log["N"])            # the log that flashlab_course.ring_check writes
"""

from collections import Counter
from itertools import product

from flashlab_course.player.page import OTHER, Player
from flashlab_course.player.scene import Scene

CHUNK, TOP = 24, 44                    # pixels: a chunk, and above the grid
HELD, WIDE, GRID = 58, 72, 154         # where blocks lie, how wide they are, and where the grid begins
KEYS = """<span>Space plays; ← → step, with Shift to the next step of the ring; Home, End</span>
<span>A rank's color: its rows of scores, its keys and values. Full: computed in this step.</span>"""


def play_ring(ranks, N):
    """A Player of the matrix of scores in chunks, in the order of the ranks that own them.

    ranks: of each rank {"calls": [{"queries", "keys", "causal"}]}, places in the sequence
    """
    R, size, causal = len(ranks), N // (2 * len(ranks)), ranks[0]["calls"][0]["causal"]
    owned = [list(dict.fromkeys(place // size for place in rank["calls"][0]["queries"])) for rank in ranks]
    times = Counter(pair for rank in ranks for call in rank["calls"] for pair in pairs_of(call, size))
    moments = [(step, done) for step in range(R) for done in (False, True)]
    scene = Scene(f"A ring of {R} ranks", OTHER, GRID + 2 * R * CHUNK, TOP + 2 * R * CHUNK)
    scene.text(HELD + WIDE / 2, TOP - 6, "small mid", "holds")
    scene.text(GRID + R * CHUNK, TOP - 22, "small mid", "chunks of keys")
    _draw_chunks(scene, sum(owned, []), times, moments)
    for r in range(R):
        at = [TOP + 2 * CHUNK * ((r + step) % R) + 5 for step, _ in moments]
        scene.text(0, TOP + 2 * CHUNK * r + 28, "name", f"rank {r}")
        scene.rect(HELD, at, WIDE, 2 * CHUNK - 10, f"live glide warp{r}")
        scene.text(HELD + WIDE / 2, [y + 22 for y in at], "on mid", f"K, V of rank {r}")
    working = [[any(times[pair] for pair in product(owned[r], owned[r - step])) for r in range(R)] for step in range(R)]
    scene.add("status", look=["status"] * len(moments), text=[_told(working, *moment) for moment in moments])
    scene.moved, scene.tiles = list(range(len(moments))), [n for n, (_, done) in enumerate(moments) if done]
    whole = len(times) == (R * (2 * R + 1) if causal else 4 * R * R) and set(times.values()) == {1}
    end = f"After {R} steps {'every score has been' if whole else 'scores are missing or'} computed "
    return Player([scene], keys=KEYS, units=("move", "step"), end=f"{end}{'once' if whole else 'twice'}.", told=True)


def _draw_chunks(scene, order, times, moments):
    """The scores of every pair of chunks, crossed out where none is computed."""
    R = len(order) // 2
    for (row, q), (column, k) in product(enumerate(order), repeat=2):
        place, step = (GRID + column * CHUNK, TOP + row * CHUNK, CHUNK, CHUNK), (row // 2 - column // 2) % R
        looks = ["" if (step, True) > now or not times[q, k] else "lit" if step == now[0] else "seen" for now in moments]
        scene.rect(*place, [f"cell warp{row // 2} {look}" for look in looks])
        if not times[q, k]:
            scene.add("stroke", *place, look="never")
    for n, chunk in enumerate(order):
        middle = CHUNK * (n + 0.5)
        scene.text(GRID + middle, TOP - 6, "small mid", str(chunk))
        scene.text(GRID - 5, TOP + middle + 4, "small end", str(chunk))


def _told(working, step, done):
    if not done:
        return "Every block goes on to the next rank." if step else "Every rank holds its own keys and values."
    idle = ", ".join(str(r) for r, works in enumerate(working[step]) if not works)
    return f"Step {step}: " + (f"idle, with later keys only: {idle}." if idle else "all ranks compute.")


def pairs_of(call, size):
    """[(query chunk, key chunk)] of one call of the kernel, without those that its mask hides whole."""
    queries, keys = (list(dict.fromkeys(place // size for place in call[name])) for name in ("queries", "keys"))
    return [(q, k) for q in queries for k in keys if k <= q or not call["causal"]]
