# kind: one mistake
# what: Q's rows are a view and are divided in place: the caller's Q is scaled by each call
# shows: the first tile is right; the next tile of the same row of tiles is too small by √d, and Q has changed
"""ex00_score_tile · my answer."""

def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    q = Q[i * B_r:(i + 1) * B_r]
    k = K[j * B_c:(j + 1) * B_c]
    q /= Q.shape[1] ** 0.5
    return q @ k.T
