# kind: right
# what: fills a tile of its own number by number, with explicit bounds, the way one would in C
# shows: the last tile gets min(...) as its end, so it has just the rows and columns that are left; no other score is made
"""ex00_score_tile · one tile of scores

Chapter 00 · difficulty 1 of 5 · 10 minutes

S holds a score for each query and each key. Cut it into tiles of B_r queries and B_c keys, and make a single tile, (i, j),
without making the rest of S.

    Q (N_q, d)   K (N_k, d)   ->   S_ij, at most (B_r, B_c)

    S = Q Kᵀ / √d        i counts the tiles of queries from 0, j counts the tiles of keys from 0

The sizes need not divide: the last tile is short, and has the rows and columns that are left.

Not allowed: all of S for a tile of it, the finished function from flashlab or solutions/.

Hint: which rows of Q does tile i take, and which rows of K does tile j take?
"""

import math


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    N_q, d = Q.shape
    N_k = K.shape[0]

    row_begin = i * B_r
    row_end = min(row_begin + B_r, N_q)
    col_begin = j * B_c
    col_end = min(col_begin + B_c, N_k)

    root = math.sqrt(d)
    tile = Q.new_zeros((row_end - row_begin, col_end - col_begin))
    for r in range(row_begin, row_end):
        for c in range(col_begin, col_end):
            tile[r - row_begin, c - col_begin] = (Q[r] * K[c]).sum() / root
    return tile
