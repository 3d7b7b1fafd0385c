# kind: one mistake
# what: K_j is transposed first and d is then read off its LAST dimension, so the scores are divided by the root of the number of keys in the tile; it should be the root of d, the length of a query
# shows: any tile whose number of keys is not d
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

import numpy as np


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    # rows of this tile
    Qi = Q[i * B_r : min((i + 1) * B_r, len(Q)), :]
    Kj = K[j * B_c : min((j + 1) * B_c, len(K)), :].T

    d = Kj.shape[-1]
    S = Qi @ Kj
    return S / float(np.sqrt(d))
