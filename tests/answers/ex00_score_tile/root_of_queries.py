# kind: one mistake
# what: √ of the number of queries in place of √ of d
# shows: everywhere but N_q = d
"""ex00_score_tile · my answer."""

import math


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    rows = slice(i * B_r, i * B_r + B_r)
    cols = slice(j * B_c, j * B_c + B_c)
    scale = 1 / math.sqrt(Q.size(0))
    return scale * Q[rows].matmul(K[cols].t())
