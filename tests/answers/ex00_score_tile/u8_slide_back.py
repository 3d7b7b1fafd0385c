# kind: one mistake
# what: the last tile is slid back so that it stays full; it should be short, with only the rows and columns that are left
# shows: N_q or N_k that B_r or B_c does not divide, last tile
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


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    # never run over the end: the last tile has to start B_r rows before it
    r0 = max(0, min(i * B_r, Q.shape[0] - B_r))
    c0 = max(0, min(j * B_c, K.shape[0] - B_c))
    Qi = Q[r0:r0 + B_r]
    Kj = K[c0:c0 + B_c]
    return Qi @ Kj.T / math.sqrt(Q.shape[1])
