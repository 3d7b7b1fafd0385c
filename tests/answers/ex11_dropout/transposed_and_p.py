# kind: two mistakes
# what: Z divides by dropout_p, and D_i is subtracted as a row (D_i[None, :])
# shows: keep with p != 0.5; more than one row
"""ex11_dropout: my answer."""

import torch


def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    """(this tile's part of dV_j, dS_ij)."""
    scale = 1 / dropout_p
    Z = keep * scale
    dV = (P_ij * Z).T @ dO_i
    dP = (dO_i @ V_j.T) * Z
    dS = P_ij * (dP - D_i[None, :])
    return dV, dS
