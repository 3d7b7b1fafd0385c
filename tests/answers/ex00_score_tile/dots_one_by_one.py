# kind: right
# what: beginner: two loops over the tile, one dot product for each score
"""ex00_score_tile · my answer."""

import torch


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    d = Q.shape[1]
    first_q, last_q = i * B_r, min((i + 1) * B_r, Q.shape[0])
    first_k, last_k = j * B_c, min((j + 1) * B_c, K.shape[0])
    tile = torch.empty(last_q - first_q, last_k - first_k, dtype=Q.dtype, device=Q.device)
    for a in range(first_q, last_q):
        for b in range(first_k, last_k):
            tile[a - first_q, b - first_k] = torch.dot(Q[a], K[b]) / d**0.5
    return tile
