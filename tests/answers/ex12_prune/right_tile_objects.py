# kind: right
# what: a NamedTuple for a choice, one function for each condition, next power of two by bit_length of (n − 1)
# shows: widths 1 and 256, d ≠ d_v, the limit met exactly, all as the stub says
"""ex12_prune · what is worth trying

Chapter 12 · difficulty 2 of 5 · 20 minutes

A search over tile sizes compiles and times each choice: seconds apiece, on a GPU that others could use. Most of the grid can be
ruled out with arithmetic. Each choice is a tuple (B_r, B_c, num_warps, num_stages). Keep those that meet both conditions:

    shared memory    Q_i takes B_r rows of D elements for as long as the program lives. Each of the num_stages stages of the
                     pipeline holds a K_j of B_c rows of D elements and a V_j of B_c rows of D_v. Together: at most `limit` bytes
    rows             each warp has 16 rows of the tile of scores at least: B_r ≥ 16 · num_warps

D and D_v are d and d_v padded to the next power of two, and to 16 at least: a tile's sides are powers of two. An element
takes element_size bytes. S_ij, P_ij and O_i live in registers and take no shared memory here.
B_r, B_c and num_warps are powers of two, num_stages is 1 or more. d and d_v are between 1 and 256.

Not allowed: the finished function from flashlab or solutions/.

Hint: write down the bytes of one choice first. What is there once, what num_stages times?
"""

from typing import NamedTuple


class Choice(NamedTuple):
    """One point of the grid."""

    B_r: int
    B_c: int
    num_warps: int
    num_stages: int


def padded(width, smallest=16):
    """The next power of two, `smallest` at least."""
    return max(smallest, 1 << (width - 1).bit_length())


class Budget:
    """What a program may take of the shared memory."""

    def __init__(self, d, d_v, element_size, limit):
        self.row_of_Q = self.row_of_K = padded(d) * element_size
        self.row_of_V = padded(d_v) * element_size
        self.limit = limit

    def bytes_of(self, choice: Choice) -> int:
        resident = choice.B_r * self.row_of_Q
        stage = choice.B_c * (self.row_of_K + self.row_of_V)
        return resident + choice.num_stages * stage

    def allows(self, choice: Choice) -> bool:
        return self.bytes_of(choice) <= self.limit


def has_rows_for_its_warps(choice: Choice) -> bool:
    return choice.B_r >= 16 * choice.num_warps


def prune(grid, d, d_v, element_size, limit):
    """The list of those choices in `grid`, a list of tuples, that meet both conditions; in any order."""
    budget = Budget(d, d_v, element_size, limit)
    return [entry for entry in grid if has_rows_for_its_warps(Choice(*entry)) and budget.allows(Choice(*entry))]
