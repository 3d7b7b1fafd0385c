# kind: two mistakes
# what: D_i is added and not subtracted; dK_j lacks the scale
# shows: D_i != 0: both wrong; scale != 1: dK wrong
"""ex08_ds_tile · one tile of dS, and what it gives to dQ and dK"""

import torch


def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    """(part of dQ_i, part of dK_j)."""
    dP_ij = dO_i @ V_j.T
    dS_ij = P_ij * (dP_ij + D_i[:, None])
    dQ_i = dS_ij @ K_j * scale
    dK_j = dS_ij.T @ Q_i
    return dQ_i, dK_j
