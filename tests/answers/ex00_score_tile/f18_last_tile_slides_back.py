# kind: one mistake
# what: at the edge the tile is moved back so that it is full (start = N - B) instead of being short
# shows: N_q % B_r != 0 with i the last tile, or N_k % B_c != 0 with j the last one
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
    N_k = len(K)
    # keep the tile inside the matrix
    top = max(0, min(i * B_r, N_q - B_r))
    left = max(0, min(j * B_c, N_k - B_c))
    return torch.einsum("qd,kd->qk", Q[top:top + B_r], K[left:left + B_c]) / d ** 0.5
