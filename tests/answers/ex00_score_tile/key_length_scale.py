# kind: one mistake
# what: scale uses len(Q) (number of queries) instead of the head size d in the return line
# shows: N_q != d
"""ex00_score_tile: my answer."""

def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    q = Q[i * B_r:(i + 1) * B_r]
    k = K[j * B_c:(j + 1) * B_c]
    return q @ k.T / len(Q) ** 0.5
