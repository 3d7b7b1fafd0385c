# kind: right
# what: loop over the queries with vectors: each gives its row of dQ and adds an outer product to dK
"""ex08_ds_tile · one tile of dS, and what it gives to dQ and dK"""

import torch


def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    """(part of dQ_i, part of dK_j)."""
    dQ = torch.zeros_like(Q_i)
    dK = torch.zeros_like(K_j)
    for r in range(Q_i.shape[0]):
        dp = V_j @ dO_i[r]                                 # (B_c,)
        ds = P_ij[r] * dp - P_ij[r] * D_i[r]
        ds = ds * scale                                    # gradient of the scores before the scale
        dQ[r] = ds @ K_j
        dK += torch.outer(ds, Q_i[r])
    return dQ, dK
