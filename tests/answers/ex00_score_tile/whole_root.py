# kind: one mistake
# what: the root of d is taken in whole numbers (math.isqrt, as `int root = sqrt(d)` in C), 2 for d = 8; it should be 2.83
# shows: any d that is no square, such as 2, 8, 32
"""ex00_score_tile · one tile of scores

Chapter 00 · difficulty 1 of 5 · 10 minutes

S holds a score for each query and each key. Cut it into tiles of B_r queries and B_c keys, and make a single tile, (i, j),
without making the rest of S.

    Q (N_q, d)   K (N_k, d)   ->   S_ij, at most (B_r, B_c)

    S = Q Kᵀ / √d        i counts the tiles of queries from 0, j counts the tiles of keys from 0

The sizes need not divide: the last tile is short, and has the rows and columns that are left.
Tensors are float32, and no size is 0.

Not allowed: all of S for a tile of it, the finished function from flashlab or solutions/.

Hint: which rows of Q does tile i take, and which rows of K does tile j take?
"""

from math import isqrt


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    root = isqrt(Q.shape[-1])
    rows = slice(i * B_r, min(i * B_r + B_r, len(Q)))
    cols = slice(j * B_c, min(j * B_c + B_c, len(K)))
    return (Q[rows] @ K[cols].mT) / root
