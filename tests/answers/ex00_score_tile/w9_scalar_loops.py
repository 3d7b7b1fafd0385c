# kind: right
# what: old C habits: two loops over the tile's own rows and columns, one dot product at a time, bounds clipped with min
# shows: makes only the entries of the tile, clips the last tile, float32 throughout; within the contract

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
    N_k, _ = K.shape
    first_row = i * B_r
    last_row = min(first_row + B_r, N_q)
    first_col = j * B_c
    last_col = min(first_col + B_c, N_k)
    tile = torch.empty(last_row - first_row, last_col - first_col, dtype=Q.dtype)
    for r in range(first_row, last_row):
        for c in range(first_col, last_col):
            tile[r - first_row, c - first_col] = torch.dot(Q[r], K[c]) / math.sqrt(d)
    return tile
