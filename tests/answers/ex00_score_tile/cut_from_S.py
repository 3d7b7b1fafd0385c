# kind: point missed
# what: makes all of S and cuts the tile out of it; it should multiply only its rows of Q with its rows of K
# shows: the numbers are right everywhere; what is forbidden shows in the size of the product (N_q × N_k instead of B_r × B_c)
"""ex00_score_tile · one tile of scores

Chapter 00 · difficulty 1 of 5 · 10 minutes

S holds a score for each query and each key. Cut it into tiles of B_r queries and B_c keys, and make a single tile, (i, j),
without making the rest of S.

    Q (N_q, d)   K (N_k, d)   ->   S_ij, at most (B_r, B_c)

    S = Q Kᵀ / √d        i counts the tiles of queries from 0, j counts the tiles of keys from 0

The sizes need not divide: the last tile is short, and has the rows and columns that are left.

Not allowed: all of S for a tile of it, the finished function from flashlab or solutions/.

Hint: which rows of Q does tile i take, and which rows of K does tile j take?
"""

import math


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    scores = Q.matmul(K.t()).div(math.sqrt(Q.shape[1]))
    strip = scores.split(B_r, dim=0)[i]
    return strip.split(B_c, dim=1)[j]
