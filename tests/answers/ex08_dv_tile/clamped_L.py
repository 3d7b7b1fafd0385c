# kind: one mistake
# what: -inf in L is caught by L.clamp(min=-100), which also changes rows whose logsumexp is really below -100
# shows: rows with L_i < -100 (all scores very negative): P and dV too small
"""ex08_dv_tile · P again, and one tile's part of dV"""

import torch

inf = float("inf")


def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
    """(P_ij, part of dV_j)."""
    S_ij = Q_i @ K_j.T * scale
    if hidden is not None:
        S_ij = S_ij.masked_fill(hidden, -inf)
    P_ij = torch.exp(S_ij - L_i.clamp(min=-100.0)[:, None])
    return P_ij, P_ij.T @ dO_i
