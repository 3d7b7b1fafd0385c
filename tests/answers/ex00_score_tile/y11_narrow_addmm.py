# kind: right
# what: narrow() for the rows of the tile, addmm with beta=0 and alpha=1/sqrt(d)
# shows: only the tile's rows of Q and K are multiplied; the short last tile has min(B, N - start) rows
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


def piece(T, number, B):
    first = number * B
    return T.narrow(0, first, min(B, T.size(0) - first))


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    q, k = piece(Q, i, B_r), piece(K, j, B_c)
    blank = torch.zeros(q.size(0), k.size(0))
    return torch.addmm(blank, q, k.t(), beta=0, alpha=Q.size(1) ** -0.5)
