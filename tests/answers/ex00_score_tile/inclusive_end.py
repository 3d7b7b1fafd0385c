# kind: one mistake
# what: the slices end at (i + 1) * B - 1 as in MATLAB, where the end is included; Python's end is excluded, so a row and a column are lost
# shows: any tile that is not cut short: it has B_r - 1 rows and B_c - 1 columns
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


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    N_q, d = Q.shape
    N_k = K.shape[0]

    # first and last row of the tile
    r_first = i * B_r
    r_last = min((i + 1) * B_r - 1, N_q)
    c_first = j * B_c
    c_last = min((j + 1) * B_c - 1, N_k)

    Q_i = Q[r_first:r_last, :]
    K_j = K[c_first:c_last, :]

    return Q_i @ K_j.T / d**0.5
