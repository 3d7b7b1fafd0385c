# kind: one mistake
# what: the tile lives in a (B_r, B_c) buffer of zeros and the whole buffer is returned; the last tile should be cut to the rows and columns that are left
# shows: N_q no multiple of B_r or N_k no multiple of B_c, last i or last j: shape too large, padded with zeros
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

import torch


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    d = Q.size(1)
    q = Q[i * B_r:(i + 1) * B_r]
    k = K[j * B_c:(j + 1) * B_c]

    # a tile on chip has a fixed size, like an array in shared memory
    S_ij = torch.zeros(B_r, B_c)
    S_ij[:q.size(0), :k.size(0)] = q @ k.T
    return S_ij / d ** 0.5
