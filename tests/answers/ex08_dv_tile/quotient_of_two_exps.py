# kind: one mistake
# what: P = exp(S) / exp(L), each on its own, in place of exp(S - L)
# shows: scores beyond about +-88 in float32 (709 in float64): inf / inf or 0 / 0 is NaN; small scores are right
"""ex08_dv_tile · P again, and one tile's part of dV"""

import torch

inf = float("inf")


def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
    """(P_ij, part of dV_j)."""
    unnormalised = torch.exp(Q_i @ K_j.T * scale)
    if hidden is not None:
        unnormalised = unnormalised.masked_fill(hidden, 0)
    sums = torch.exp(L_i).masked_fill(L_i == -inf, 1)
    P_ij = unnormalised / sums[:, None]
    return P_ij, P_ij.T @ dO_i
