# kind: two mistakes
# what: d is taken from K.shape[0], the number of keys, instead of K.shape[1]; and the tile sizes are swapped (B_c rows of Q, B_r of K)
# shows: the first for every tile where N_k != d, the second wherever B_r != B_c

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

import torch


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    d = K.shape[0]
    q = Q[i * B_c : (i + 1) * B_c]
    k = K[j * B_r : (j + 1) * B_r]
    return torch.einsum("rd,cd->rc", q, k) / d ** 0.5
