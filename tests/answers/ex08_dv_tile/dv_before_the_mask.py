# kind: one mistake
# what: dV_j is made from the weights as they were before the mask; the P_ij returned is masked
# shows: hidden with any True: dV_j wrong, P_ij right; without a mask both are right
"""ex08_dv_tile · P again, and one tile's part of dV"""

import torch

inf = float("inf")


def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
    """(P_ij, part of dV_j)."""
    L_safe = torch.where(torch.isinf(L_i), torch.zeros_like(L_i), L_i)
    P_ij = torch.exp(scale * Q_i @ K_j.T - L_safe[:, None])
    dV_j = P_ij.T @ dO_i
    if hidden is not None:
        P_ij = P_ij.masked_fill(hidden, 0.0)
    return P_ij, dV_j
