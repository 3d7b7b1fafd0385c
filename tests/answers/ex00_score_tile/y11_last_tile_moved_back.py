# kind: one mistake
# what: the start is min(i * B, N - B), so the last tile is moved back to be full; it should start at i * B and be short
# shows: sizes that do not divide, e.g. N_q = 7, B_r = 3, i = 2: three rows that begin at 4 instead of one row, 6
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


def start(number, B, N):
    # do not run over the end
    return max(0, min(number * B, N - B))


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    r = start(i, B_r, Q.shape[0])
    c = start(j, B_c, K.shape[0])
    Q_i = Q[r:r + B_r]
    K_j = K[c:c + B_c]
    return Q_i @ K_j.T / Q.shape[1] ** 0.5
