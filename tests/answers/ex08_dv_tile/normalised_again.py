# kind: one mistake
# what: P is divided by its row sum in the tile
# shows: tile shows a part of the keys
"""ex08_dv_tile: my answer."""

import torch

inf = float("inf")


def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
    """(P_ij, this tile's part of dV_j)."""
    S = Q_i @ K_j.T * scale
    P = torch.exp(S - L_i[:, None])
    if hidden is not None:
        P = P.masked_fill(hidden, 0)
    P = P.masked_fill(L_i[:, None] == -inf, 0)
    P = P / P.sum(1, keepdim=True).clamp(min=1e-30)
    return P, P.T @ dO_i
