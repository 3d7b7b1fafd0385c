# kind: one mistake
# what: the last tile is slid back so that it is full (start = min(i * B_r, N - B_r)); it should start at i * B_r and be short
# shows: any last tile where the size does not divide, such as 10 queries in tiles of 4: rows 6 to 9 instead of 8 and 9

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


def _rows_of(X, n, size):
    """Rows of tile n; the last one must not run over the end."""
    start = n * size
    if start + size > len(X):
        start = max(0, len(X) - size)
    return X[start:start + size]


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    d = Q.shape[1]
    return _rows_of(Q, i, B_r) @ _rows_of(K, j, B_c).T * d ** -0.5
