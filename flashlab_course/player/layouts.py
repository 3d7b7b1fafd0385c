"""The player of a tile in registers: which thread of a warp holds what of P, and what the next product takes from it.

    play_layouts()
"""

from itertools import product

from flashlab_course.player.page import Player
from flashlab_course.player.scene import Scene

BLUE, SIZE, CELL, TOP = "#1f77b4", 8, 23, 36           # elements a side; pixels of one, and above them
KEYS = f"""<span>Space plays; ← → step by thread; Home, End</span>
<span>In a cell: the thread that holds the number.</span>
<span><b style="background: color-mix(in srgb, {BLUE} 24%, var(--paper))"></b>this thread holds it</span>
<span><b class="wrong"></b>the next product takes it from this thread</span>"""


def holder(row, column):
    """The thread that holds an element of a product's upper left 8 × 8 corner; and the one that hands in that element
    of a left factor of 16-bit numbers (PTX ISA, mma and wgmma)."""
    return row * 4 + column // 2


def play_layouts():
    """Thread by thread: what it holds of P, computed as Q K^T, and of P^T, computed as K Q^T; what it must hand in of
    P^T, the left factor of P^T dO."""
    scene = Scene("P in the registers of a warp", BLUE, 450, TOP + SIZE * CELL)
    turned = lambda row, column: holder(column, row)
    for left, name, rows, columns, wanted in ((24, "P from Q Kᵀ", "queries", "keys", turned),
                                              (262, "Pᵀ from K Qᵀ", "keys", "queries", holder)):
        scene.text(left, 11, "name", name)
        scene.text(left, 28, "", f"rows: {rows}, columns: {columns}")
        for row, column in product(range(SIZE), repeat=2):
            x, y, own, next_one = left + column * CELL, TOP + row * CELL, holder(row, column), wanted(row, column)
            scene.rect(x, y, CELL, CELL, ["block" if thread == own else "cell" for thread in range(32)])
            scene.rect(x + 2, y + 2, [(CELL - 4) * (thread == next_one) for thread in range(32)], CELL - 4, "mark")
            scene.text(x + CELL / 2, y + 16, "mid", str(own))
    scene.add("status", look="status", text=[said_of(thread) for thread in range(32)])
    scene.moved, scene.tiles = list(range(32)), list(range(3, 32, 4))
    return Player([scene], keys=KEYS, units=("thread", "row"))


def said_of(thread):
    row, column = thread // 4, thread % 4 * 2
    places = [(row, column), (row, column + 1)]
    there = " and ".join(str(holder(c, r)) for r, c in places)
    return (f"Thread {thread} hands Pᵀ[{row}, {column}] and Pᵀ[{row}, {column + 1}] to the next product.\n"
            f"After Q Kᵀ they are in threads {there}. After K Qᵀ thread {thread} holds them.")
