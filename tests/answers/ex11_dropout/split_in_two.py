# kind: right
# what: dS as the difference of two products: the dropped weights' part, and every weight's part of D
"""ex11_dropout · dropout's mask and scale, backwards"""

import torch


def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    """(this tile's part of dV_j, dS_ij)."""
    A = P_ij.clone()
    A[~keep] = 0
    A /= 1 - dropout_p                                   # the weights that met V
    dV_j = (dO_i.T @ A).T
    through_weights = A * (dO_i @ V_j.T)
    through_sum = torch.diag(D_i) @ P_ij
    return dV_j, through_weights - through_sum
