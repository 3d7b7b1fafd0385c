# kind: right
# what: einsum on the tile's rows; the factor 1/sqrt(d) is given half to the queries and half to the keys (d**-1/4 each)
# shows: only the rows of Q and K of the tile are multiplied, so S is never made; short last tiles come from slicing past the end
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


def block_rows(T, number, size):
    """The rows that tile `number` has; slicing stops at the last row by itself."""
    first = number * size
    return T[first:first + size]


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    d = Q.shape[1]
    unit = d ** -0.25                                   # unit * unit = 1/sqrt(d)
    q = block_rows(Q, i, B_r) * unit
    k = block_rows(K, j, B_c) * unit
    return torch.einsum("ax,bx->ab", q, k)
