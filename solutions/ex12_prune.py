"""ex12_prune · what is worth trying

Chapter 12 · difficulty 2 of 5 · 20 minutes

A search over tile sizes compiles and times each choice: seconds apiece, on a GPU that others could use. Most of the
grid can be ruled out with arithmetic. Each choice is a tuple (B_r, B_c, num_warps, num_stages). Keep those that meet
both conditions:

    shared memory    Q_i takes B_r rows of D elements for as long as the program lives. Each of the num_stages stages of
                     the pipeline holds a K_j of B_c rows of D elements and a V_j of B_c rows of D_v. Together: at most
                     `limit` bytes
    rows             each warp has 16 rows of the tile of scores at least: B_r ≥ 16 · num_warps

D and D_v are d and d_v padded to the next power of two, and to 16 at least: a tile's sides are powers of two. An
element takes element_size bytes. S_ij, P_ij and O_i live in registers and take no shared memory here. B_r, B_c and
num_warps are powers of two, num_stages is 1 or more. d and d_v are between 1 and 256.

Not allowed: the finished function from flashlab or solutions/.

Hint: write down the bytes of one choice first. What is there once, what num_stages times?
"""


def prune(grid, d, d_v, element_size, limit):
    """The list of those choices in `grid`, a list of tuples, that meet both conditions; in any order."""
    # >>> your turn: the padded widths, the bytes of each choice, the two conditions
    D, D_v = 16, 16
    while D < d:
        D *= 2
    while D_v < d_v:
        D_v *= 2
    kept = []
    for B_r, B_c, num_warps, num_stages in grid:
        shared = element_size * (B_r * D + num_stages * B_c * (D + D_v))
        if shared <= limit and B_r >= 16 * num_warps:
            kept.append((B_r, B_c, num_warps, num_stages))
    return kept
    # <<<
