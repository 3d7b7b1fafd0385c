# kind: right
# what: verbose: entry by entry with math.exp
"""ex08_dv_tile: my answer."""

import torch

inf = float("inf")


import math


def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
    """(P_ij, this tile's part of dV_j)."""
    n, c = len(Q_i), len(K_j)
    P = torch.zeros(n, c, dtype=Q_i.dtype)
    for r in range(n):
        if L_i[r] == -inf:
            continue
        for k in range(c):
            if hidden is not None and hidden[r, k]:
                continue
            P[r, k] = math.exp(float(Q_i[r] @ K_j[k]) * scale - float(L_i[r]))
    dV_j = torch.zeros(c, dO_i.shape[1], dtype=dO_i.dtype)
    for k in range(c):
        for r in range(n):
            dV_j[k] += P[r, k] * dO_i[r]
    return P, dV_j
