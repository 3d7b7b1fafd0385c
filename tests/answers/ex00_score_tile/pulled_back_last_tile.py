# kind: one mistake
# what: the last tile is pulled back so that it is always full: it begins at N - B
# shows: N_q or N_k not a multiple of the tile: the last tile has full size and begins too early
"""ex00_score_tile · my answer."""

def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    N_q, d = Q.shape
    N_k = K.shape[0]
    r = max(0, min(i * B_r, N_q - B_r))
    c = max(0, min(j * B_c, N_k - B_c))
    return Q[r:r + B_r] @ K[c:c + B_c].T / d**0.5
