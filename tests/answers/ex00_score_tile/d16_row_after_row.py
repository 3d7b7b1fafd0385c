# kind: right
# what: C style: bounds as numbers, an own buffer of the tile's true size, filled one query at a time
# shows: bounds are cut at N_q and N_k, one tile's rows times one query only, float32 throughout
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
    N_q, d = Q.shape
    N_k = K.shape[0]

    row_begin = i * B_r
    row_end = row_begin + B_r
    if row_end > N_q:
        row_end = N_q
    col_begin = j * B_c
    col_end = col_begin + B_c
    if col_end > N_k:
        col_end = N_k

    tile = torch.empty(row_end - row_begin, col_end - col_begin)
    keys = K[col_begin:col_end]
    for r in range(row_begin, row_end):
        tile[r - row_begin] = (keys * Q[r]).sum(dim=1)      # dot product of one query with each key
    return tile / d ** 0.5
