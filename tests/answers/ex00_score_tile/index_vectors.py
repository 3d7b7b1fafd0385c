# kind: right
# what: index vectors as in MATLAB (find the rows that belong to the tile), then one small product, scaled before it
# shows: only the tile's own rows of Q and K are touched; short last tiles come out of the comparison; float32 throughout
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


def members(N, tile, B):
    """All indices n with floor(n / B) == tile, like find(floor((0:N-1)/B) == tile)."""
    n = torch.arange(N)
    return torch.nonzero(n // B == tile).flatten()


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    d = Q.size(1)
    Qi = Q[members(Q.size(0), i, B_r), :]
    Kj = K[members(K.size(0), j, B_c), :]
    return torch.einsum("rd,cd->rc", Qi / d ** 0.5, Kj)
