# kind: two mistakes
# what: (1) tiles are counted from 1, as in R and Fortran: tile i starts at row (i - 1)*B_r, it should be i*B_r. (2) scores are divided by d, the variance of a sum of d products, not by its standard deviation sqrt(d)
# shows: (1) every tile: tile 0 is empty, tile 1 is tile 0's; (2) any d other than 1
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
    N_k = K.shape[0]

    r0 = max((i - 1) * B_r, 0)
    r1 = min(i * B_r, N_q)
    c0 = max((j - 1) * B_c, 0)
    c1 = min(j * B_c, N_k)

    # a sum of d independent products of unit variance has variance d: normalise it
    S_ij = Q[r0:r1] @ K[c0:c1].T
    S_ij = S_ij / d
    return S_ij
