"""The player of a ring of ranks: blocks of keys travel, queries stay, and the scores fill up."""

from itertools import product

from flashlab_course.player.page import OTHER, Player
from flashlab_course.player.scene import Scene

CHUNK, TOP = 24, 44                    # pixels: a chunk, and above the grid
HELD, WIDE, GRID = 58, 72, 154         # where blocks lie, how wide they are, and where the grid begins
KEYS = """<span>Space plays; ← → step, with Shift to the next step of the ring; Home, End</span>
<span>A rank's color: its rows of scores, its keys and values. Full: computed in this step.</span>"""


def play_ring(ranks, N):
    """A Player of the scores in chunks, in the order of the ranks that own them.

    ranks: of each rank {"calls": [{"queries", "keys", "causal"}]}, places in the sequence, as
    flashlab_course.ring_check notes them
    """
    R, size = len(ranks), N // (2 * len(ranks))
    owned = [place // size for rank in ranks for place in rank["calls"][0]["queries"][::size]]
    pairs = {(q // size, k // size) for rank in ranks for call in rank["calls"]
             for q, k in product(call["queries"][::size], call["keys"][::size]) if k <= q or not call["causal"]}
    moments = [(step, done) for step in range(R) for done in (False, True)]
    scene = Scene(f"A ring of {R} ranks", OTHER, GRID + 2 * R * CHUNK, TOP + 2 * R * CHUNK)
    scene.text(HELD + WIDE / 2, TOP - 6, "small mid", "holds")
    scene.text(GRID + R * CHUNK, TOP - 22, "small mid", "chunks of keys")
    busy = [set() for _ in ranks]                      # of each step, the ranks that compute
    for (row, q), (column, k) in product(enumerate(owned), repeat=2):
        rank, step = row // 2, (row // 2 - column // 2) % R
        place, shown = (GRID + column * CHUNK, TOP + row * CHUNK, CHUNK, CHUNK), (q, k) in pairs
        looks = ["" if not shown or (step, True) > now else "lit" if step == now[0] else "seen" for now in moments]
        scene.rect(*place, [f"cell warp{rank} {look}" for look in looks])
        if shown:
            busy[step].add(rank)
        else:
            scene.add("stroke", *place, look="never")
    for n, chunk in enumerate(owned):
        middle = CHUNK * (n + 0.5)
        scene.text(GRID + middle, TOP - 6, "small mid", str(chunk))
        scene.text(GRID - 5, TOP + middle + 4, "small end", str(chunk))
    for r in range(R):
        at = [TOP + 2 * CHUNK * ((r + step) % R) + 5 for step, _ in moments]
        scene.text(0, TOP + 2 * CHUNK * r + 28, "name", f"rank {r}")
        scene.rect(HELD, at, WIDE, 2 * CHUNK - 10, f"live glide warp{r}")
        scene.text(HELD + WIDE / 2, [y + 22 for y in at], "on mid", f"K, V of rank {r}")
    words = "Every rank holds its block for step {}.", "Step {}: these ranks compute: {}."
    scene.add("status", look=["status"] * 2 * R, text=[
        words[done].format(step, ", ".join(map(str, sorted(busy[step])))) for step, done in moments])
    scene.moved, scene.tiles = list(range(2 * R)), list(range(1, 2 * R, 2))
    return Player([scene], keys=KEYS, units=("move", "step"), told=True)
