# kind: right
# what: C-like: while-loops over the tile, one dot product at a time, short tile by min()
"""ex00_score_tile: my answer."""

def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    N_q, d = Q.shape
    N_k = K.shape[0]
    row0 = i * B_r
    row1 = min(row0 + B_r, N_q)
    col0 = j * B_c
    col1 = min(col0 + B_c, N_k)
    S_ij = Q.new_zeros(row1 - row0, col1 - col0)
    r = row0
    while r < row1:
        c = col0
        while c < col1:
            S_ij[r - row0, c - col0] = (Q[r] * K[c]).sum() / d ** 0.5
            c += 1
        r += 1
    return S_ij
