# kind: one mistake
# what: dS is made in the memory of P_ij, an input
# shows: the results are right; P_ij is another tensor afterwards
"""ex08_ds_tile · one tile of dS, and what it gives to dQ and dK"""

import torch


def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    """(part of dQ_i, part of dK_j)."""
    dS = P_ij
    dS *= (dO_i @ V_j.mT).sub_(D_i.unsqueeze(-1)).mul_(scale)      # saves a tile
    return dS @ K_j, dS.mT @ Q_i
