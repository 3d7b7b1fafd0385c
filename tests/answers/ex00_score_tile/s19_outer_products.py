# kind: right
# what: builds the tile as a sum of d outer products of the columns of its rows of Q and K, then divides by sqrt(d)
# shows: only the tile's own rows are taken, short tiles at both edges, float32, d != B sizes

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


def bounds(number, B, N):
    first = number * B
    last = first + B
    if last > N:
        last = N
    return first, last


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    q0, q1 = bounds(i, B_r, Q.shape[0])
    k0, k1 = bounds(j, B_c, K.shape[0])
    d = Q.shape[1]
    tile = torch.zeros(q1 - q0, k1 - k0, dtype=Q.dtype)
    for c in range(d):
        tile += torch.outer(Q[q0:q1, c], K[k0:k1, c])
    tile /= math.sqrt(d)
    return tile
