# kind: right
# what: numpy style: the rows by index arrays, products by broadcasting (rows, 1, d) * (1, cols, d), summed over the last axis
# shows: only the tile's own rows of Q and K are touched; the index arrays are cut short at N_q and N_k, so last tiles are short

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


def rows_of_tile(n, size, total):
    first = n * size
    return torch.arange(first, min(first + size, total))


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    d = Q.shape[1]
    q = Q[rows_of_tile(i, B_r, Q.shape[0])]
    k = K[rows_of_tile(j, B_c, K.shape[0])]
    products = q[:, None, :] * k[None, :, :]
    return products.sum(axis=-1) / d**0.5
