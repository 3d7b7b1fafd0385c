"""ex00_score_tile · one tile of scores

Chapter 00 · difficulty 1 of 5 · 10 minutes

S holds a score for each query and each key. It is cut into tiles of B_r queries and B_c keys. Compute tile (i, j)
alone, without computing all of S.

    Q (N_q, d)   K (N_k, d)   ->   S_ij, at most (B_r, B_c)

    S = Q Kᵀ / √d        i counts query tiles from 0, j counts key tiles from 0

Where the sizes do not divide evenly, the last tile is short: it has the rows and columns that are left.
Tensors are float32, and no size is 0.

Not allowed: computing all of S (a whole strip of tiles is fine), the finished function from flashlab or solutions/.

Hint: which rows of Q does query tile i have? Which rows of K does key tile j have?
"""


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    # >>> your turn: its rows of Q, its rows of K, their scores
    Q_i = Q[i * B_r : (i + 1) * B_r]                     # (B_r, d)      a slice stops at the end: the last one is short
    K_j = K[j * B_c : (j + 1) * B_c]                                # (B_c, d)
    return Q_i @ K_j.T * Q.shape[-1] ** -0.5                        # (B_r, B_c)
    # <<<
