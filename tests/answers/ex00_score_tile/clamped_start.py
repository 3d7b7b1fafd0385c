# kind: one mistake
# what: the last tile is pushed back inside (start = min(i*B, N-B)) so it is full instead of short
# shows: sizes that do not divide: the last tile has too many, wrong rows
"""ex00_score_tile: my answer."""

import math

import torch


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    start_q = min(i * B_r, len(Q) - B_r)
    start_k = min(j * B_c, len(K) - B_c)
    q = Q[start_q:start_q + B_r]
    k = K[start_k:start_k + B_c]
    return torch.einsum("rd,cd->rc", q, k) / math.sqrt(Q.shape[1])
