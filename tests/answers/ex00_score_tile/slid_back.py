# kind: one mistake
# what: moves the last tile back so that it is full (start = min(i * B_r, N_q - B_r)); it should start at i * B_r and be short
# shows: any last tile where B_r does not divide N_q or B_c does not divide N_k
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


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    # do not run over the end
    q0 = max(0, min(i * B_r, len(Q) - B_r))
    k0 = max(0, min(j * B_c, len(K) - B_c))
    Q_i = Q[q0:q0 + B_r]
    K_j = K[k0:k0 + B_c]
    return Q_i @ K_j.T / Q.shape[1] ** 0.5
