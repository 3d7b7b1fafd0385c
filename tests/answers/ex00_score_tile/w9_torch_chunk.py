# kind: one mistake
# what: cuts with torch.chunk(Q, number of tiles), which makes tiles of about equal size; it should be tiles of B_r (torch.split)
# shows: 9 rows with B_r = 4: chunk gives 3 + 3 + 3, the tiles are 4 + 4 + 1

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
    tiles_of_queries = math.ceil(Q.shape[0] / B_r)
    tiles_of_keys = math.ceil(K.shape[0] / B_c)
    Q_i = torch.chunk(Q, tiles_of_queries)[i]
    K_j = torch.chunk(K, tiles_of_keys)[j]
    return Q_i @ K_j.T / math.sqrt(Q.shape[1])
