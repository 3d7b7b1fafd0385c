# kind: one mistake
# what: a tile that would stick out is pushed back so that it is full (start = min(i*B_r, N - B_r)); it should start at i*B_r and be short
# shows: N_q not a multiple of B_r, or N_k of B_c, and the last tile of that direction
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


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    N_q, d = Q.shape
    N_k, _ = K.shape
    # the tile must not leave the matrix
    row = max(0, min(i * B_r, N_q - B_r))
    col = max(0, min(j * B_c, N_k - B_c))
    Q_i = Q[row:row + B_r]
    K_j = K[col:col + B_c]
    return Q_i @ K_j.T / d ** 0.5
