# kind: right
# what: clipped bounds written out, einsum over the two strips, scale applied to Q's rows first
# shows: only the tile's rows of Q and K are touched; short last tiles come from min()
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
    d = Q.size(-1)
    q0, q1 = i * B_r, min((i + 1) * B_r, Q.size(0))
    k0, k1 = j * B_c, min((j + 1) * B_c, K.size(0))
    return torch.einsum("qd,kd->qk", Q[q0:q1] * d ** -0.5, K[k0:k1])
