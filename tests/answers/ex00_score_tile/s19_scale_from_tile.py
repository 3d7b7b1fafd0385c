# kind: one mistake
# what: d is read off as the number of rows of the tile of K (len(K_j)) instead of its columns, K_j.shape[1]
# shows: every tile whose number of keys is not d

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

from math import sqrt


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    Q_i = Q[i * B_r : (i + 1) * B_r, :]
    K_j = K[j * B_c : (j + 1) * B_c, :]
    d = len(K_j)
    S_ij = Q_i.matmul(K_j.transpose(0, 1))
    return S_ij / sqrt(d)
