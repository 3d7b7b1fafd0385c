# kind: one mistake
# what: Z multiplies (dP - D) instead of dP alone
# shows: keep not all True or p > 0
"""ex11_dropout: my answer."""

import torch


def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    """(this tile's part of dV_j, dS_ij)."""
    Z = keep / (1 - dropout_p)
    dV = (P_ij * Z).T @ dO_i
    dP = dO_i @ V_j.T
    dS = P_ij * (Z * (dP - D_i[:, None]))
    return dV, dS
