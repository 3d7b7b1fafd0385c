# kind: right
# what: masks with where, scales by einsum's other operand; the scale is pulled to dO
"""ex11_dropout · dropout's mask and scale, backwards"""

import torch


def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    """(this tile's part of dV_j, dS_ij)."""
    grown = dO_i / (1 - dropout_p)                                    # (B_r, d_v)
    met_V = torch.where(keep, P_ij, torch.zeros_like(P_ij))           # (B_r, B_c)   without the scale
    dV_j = torch.einsum("rc,rv->cv", met_V, grown)
    dP_ij = torch.einsum("rv,cv->rc", grown, V_j).masked_fill(~keep, 0)
    return dV_j, P_ij * (dP_ij - D_i.unsqueeze(-1))
