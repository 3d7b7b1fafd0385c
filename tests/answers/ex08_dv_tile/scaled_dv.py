# kind: one mistake
# what: dV gets the factor scale too
# shows: scale != 1
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
    return P, P.T @ dO_i * scale
