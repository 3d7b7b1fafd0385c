# kind: one mistake
# what: divides the rows of Q and the rows of K by √d each, so the scores are divided by d; only one of the two should be
# shows: every input with d > 1
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


def rows_of_tile(X, n, B):
    """Rows of tile n, already scaled."""
    part = X[n * B:(n + 1) * B]
    return part / X.shape[-1] ** 0.5


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    q = rows_of_tile(Q, i, B_r)
    k = rows_of_tile(K, j, B_c)
    return q @ k.transpose(0, 1)
