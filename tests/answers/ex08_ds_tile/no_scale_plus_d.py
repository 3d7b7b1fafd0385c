# kind: two mistakes
# what: D_i is added instead of subtracted, and dK is made without the scale
# shows: any with scale != 1
"""ex08_ds_tile: my answer."""

import torch


def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    """(this tile's part of dQ_i, this tile's part of dK_j)."""
    dP = torch.matmul(dO_i, V_j.transpose(0, 1))
    dS = P_ij * (dP + D_i[:, None])
    dQ_i = torch.matmul(dS, K_j) * scale
    dK_j = torch.matmul(dS.transpose(0, 1), Q_i)
    return dQ_i, dK_j
