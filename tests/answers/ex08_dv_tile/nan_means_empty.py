# kind: right
# what: hidden scores are -inf by torch.where, -inf - (-inf) is allowed to be NaN and the weights of empty rows are set to 0 at the end
"""ex08_dv_tile · P again, and one tile's part of dV"""

import torch

inf = float("inf")


def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
    """(P_ij, part of dV_j)."""
    logits = torch.einsum("rd,cd->rc", Q_i * scale, K_j)
    if hidden is not None:
        logits = torch.where(hidden, -inf, logits)
    weights = (logits - L_i.unsqueeze(1)).exp()
    weights[L_i == -inf] = 0
    return weights, torch.einsum("rc,rv->cv", weights, dO_i)
