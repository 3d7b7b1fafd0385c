# kind: one mistake
# what: rows of Q are cut with B_c and rows of K with B_r (block sizes exchanged)
# shows: B_r != B_c
"""ex00_score_tile: my answer."""

def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    q = Q[i * B_c:(i + 1) * B_c]
    k = K[j * B_r:(j + 1) * B_r]
    return q @ k.T / Q.shape[1] ** 0.5
