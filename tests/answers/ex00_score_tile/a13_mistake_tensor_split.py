# kind: one mistake
# what: the rows are cut with torch.tensor_split (numpy's array_split) into ceil(N/B) pieces of nearly EQUAL size; tiles should have B rows each and only the last one be short
# shows: sizes where B does not divide N and the rest is more than one row short, such as N_q = 10, B_r = 4 (4, 3, 3 instead of 4, 4, 2)
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
    n_row_tiles = math.ceil(Q.shape[0] / B_r)
    n_col_tiles = math.ceil(K.shape[0] / B_c)
    Q_i = torch.tensor_split(Q, n_row_tiles)[i]
    K_j = torch.tensor_split(K, n_col_tiles)[j]
    return Q_i @ K_j.T / math.sqrt(Q.shape[1])
