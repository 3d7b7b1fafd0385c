# kind: one mistake
# what: a tile is always made B_r by B_c, as on a GPU: a short last tile comes back padded with zeros instead of short
# shows: N_q not a multiple of B_r, or N_k not one of B_c, and the last tile asked for: the shape is (B_r, B_c)
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
    d = Q.shape[1]
    Q_i = Q[i * B_r:(i + 1) * B_r]
    K_j = K[j * B_c:(j + 1) * B_c]
    S_ij = torch.zeros(B_r, B_c)
    # threads beyond the edge keep their zero
    S_ij[:len(Q_i), :len(K_j)] = Q_i @ K_j.T / math.sqrt(d)
    return S_ij
