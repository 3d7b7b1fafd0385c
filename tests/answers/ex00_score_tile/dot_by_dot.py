# kind: right
# what: old C habits: a tile of its own, filled score by score with dot products
# shows: the tile has exactly the rows and columns that are left; no other score is made
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

import math

import torch


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    N_q, d = Q.shape
    N_k = K.shape[0]
    r0, r1 = i * B_r, min((i + 1) * B_r, N_q)
    c0, c1 = j * B_c, min((j + 1) * B_c, N_k)

    tile = torch.empty(r1 - r0, c1 - c0, dtype=torch.float32)
    for r in range(r0, r1):
        for c in range(c0, c1):
            tile[r - r0, c - c0] = torch.dot(Q[r], K[c]) / math.sqrt(d)
    return tile
