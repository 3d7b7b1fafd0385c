# kind: one mistake
# what: D is made again as the row sum of P_ij * dP_ij over this tile; D_i, the sum over all keys, is not used
# shows: D_i not equal to the tile's own row sum, that is whenever the tile shows not all keys
"""ex08_ds_tile · one tile of dS, and what it gives to dQ and dK"""

import torch


def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    """(part of dQ_i, part of dK_j)."""
    dP_ij = dO_i @ V_j.T
    PdP = P_ij * dP_ij
    dS_ij = PdP - P_ij * PdP.sum(dim=1, keepdim=True)
    return scale * dS_ij @ K_j, scale * dS_ij.T @ Q_i
