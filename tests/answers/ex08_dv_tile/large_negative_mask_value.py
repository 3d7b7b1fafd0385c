# kind: right
# what: hidden scores become -1e4 and not -inf: still something where the row's visible scores are down there too
# shows: a row with L_i near or below -1e4 and a hidden key: hidden keys get weight; ordinary scores are right
# note: the stub's domain, scores between −1000 and 1000, allows it
"""ex08_dv_tile · P again, and one tile's part of dV"""

import torch

inf = float("inf")


def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
    """(P_ij, part of dV_j)."""
    S = scale * (Q_i @ K_j.T)
    if hidden is not None:
        S = S.masked_fill(hidden, -1e4)
    rows_with_keys = (L_i != -inf)[:, None]
    P = torch.where(rows_with_keys, torch.exp(S - L_i[:, None]), 0.0)
    return P, P.T @ dO_i
