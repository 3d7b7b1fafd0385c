# kind: right
# what: ends of both ranges clamped by hand, tile made as (K_j Q_i^T)^T with the division done on Q's rows first
# shows: slices stop at N_q and N_k, only B_r x B_c scores are made; float32, inputs untouched
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


def _piece(T, number, size):
    begin = number * size
    end = begin + size
    if end > T.shape[0]:
        end = T.shape[0]
    return T.narrow(0, begin, end - begin)


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    q = _piece(Q, i, B_r) / math.sqrt(Q.shape[1])
    k = _piece(K, j, B_c)
    return torch.mm(k, q.t()).t()
