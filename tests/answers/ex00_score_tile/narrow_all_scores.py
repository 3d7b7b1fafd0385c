# kind: point missed
# what: all of S is made with einsum and the tile is cut out of it afterwards
# shows: numbers right; makes the N_q x N_k matrix
"""ex00_score_tile: my answer."""

import torch


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    S = torch.einsum("qd,kd->qk", Q, K) / Q.size(1) ** 0.5
    return S[i * B_r:(i + 1) * B_r, j * B_c:(j + 1) * B_c]
