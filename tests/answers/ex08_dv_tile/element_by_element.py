# kind: right
# what: beginner's double loop; a weight is computed only where the key is visible and the row sees anything
"""ex08_dv_tile · P again, and one tile's part of dV"""

import torch

inf = float("inf")


def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
    """(P_ij, part of dV_j)."""
    P = Q_i.new_zeros(len(Q_i), len(K_j))
    dV = dO_i.new_zeros(len(K_j), dO_i.shape[1])
    for c in range(len(K_j)):
        for r in range(len(Q_i)):
            if hidden is not None and hidden[r, c]:
                continue
            if L_i[r] == -inf:
                continue
            P[r, c] = torch.exp(scale * (Q_i[r] @ K_j[c]) - L_i[r])
            dV[c] += P[r, c] * dO_i[r]
    return P, dV
