# kind: point missed
# what: all of S is made and the tile cut out of it
# shows: numbers right; S (N_q, N_k) is formed for one tile of it
"""ex00_score_tile · my answer."""

def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    S = Q @ K.mT / Q.shape[-1] ** 0.5
    return S.split(B_r, 0)[i].split(B_c, 1)[j]
