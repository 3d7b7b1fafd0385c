# kind: one mistake
# what: a tile that would stick out is taken as the LAST B_r rows (Q[-B_r:]), so it overlaps the tile before; it should be short, Q[i * B_r:]
# shows: N_q or N_k not a multiple of its tile size, and the last tile: too many rows (columns), and wrong ones
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


def block(X, n, size):
    start, stop = n * size, (n + 1) * size
    if stop > len(X):
        return X[-size:]          # last one
    return X[start:stop]


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    d = Q.shape[1]
    Q_i = block(Q, i, B_r)
    K_j = block(K, j, B_c)
    return Q_i @ K_j.T / d**0.5
