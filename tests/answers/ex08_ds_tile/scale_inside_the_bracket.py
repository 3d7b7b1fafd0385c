# kind: one mistake
# what: the scale is put on dP before D_i is subtracted: P * (scale * dP - D) in place of scale * P * (dP - D)
# shows: scale != 1: the part with D lacks the scale; scale = 1 is right
"""ex08_ds_tile · one tile of dS, and what it gives to dQ and dK"""

import torch


def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    """(part of dQ_i, part of dK_j)."""
    dP_ij = scale * torch.einsum("rv,cv->rc", dO_i, V_j)
    dS_ij = P_ij * (dP_ij - D_i[:, None])
    dQ_i = torch.einsum("rc,cd->rd", dS_ij, K_j)
    dK_j = torch.einsum("rc,rd->cd", dS_ij, Q_i)
    return dQ_i, dK_j
