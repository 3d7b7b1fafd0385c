# kind: one mistake
# what: the last tile is moved back so that it is full (start = N - B) instead of being short
# shows: sizes that the tiles do not divide, last tile of rows or of columns
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


def window(N, n, B):
    # we have to stay inside the matrix
    start = n * B
    if start + B > N:
        start = N - B
    start = max(start, 0)
    return slice(start, start + B)


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    q = Q[window(len(Q), i, B_r)]
    k = K[window(len(K), j, B_c)]
    return (q @ k.transpose(0, 1)) / math.sqrt(q.shape[1])
