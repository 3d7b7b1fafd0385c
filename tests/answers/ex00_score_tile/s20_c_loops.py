# kind: right
# what: two old C loops, one dot product for each pair of the tile; the bounds are min(..., size)
# shows: makes only the tile, short tiles at the edges included, in float32, whatever the sizes

"""ex00_score_tile · one tile of scores

Chapter 00 · difficulty 1 of 5 · 10 minutes

S holds a score for each query and each key. Cut it into tiles of B_r queries and B_c keys, and make a single tile, (i, j),
without making all of S.

    Q (N_q, d)   K (N_k, d)   ->   S_ij, at most (B_r, B_c)

    S = Q Kᵀ / √d        i counts the tiles of queries from 0, j counts the tiles of keys from 0

The sizes need not divide: the last tile is short, and has the rows and columns that are left.
Tensors are float32, and no size is 0.

Not allowed: all of S for a tile of it (a strip of it would do), the finished function from flashlab or solutions/.

Hint: which rows of Q does tile i take, and which rows of K does tile j take?
"""

import math

import torch


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    N_q, d = Q.shape
    N_k = K.shape[0]
    row0 = i * B_r
    row1 = row0 + B_r if row0 + B_r < N_q else N_q
    col0 = j * B_c
    col1 = col0 + B_c if col0 + B_c < N_k else N_k
    root = math.sqrt(d)
    tile = torch.zeros((row1 - row0, col1 - col0), dtype=Q.dtype)
    for r in range(row0, row1):
        for c in range(col0, col1):
            tile[r - row0, c - col0] = torch.dot(Q[r], K[c]) / root
    return tile
