# kind: two mistakes
# what: multiplies by 1 - p where it should divide, and adds D
# shows: dV and dS for 0 < p; dS wherever D is not 0
"""ex11_dropout · dropout's mask and scale, backwards"""


def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    """(this tile's part of dV_j, dS_ij)."""
    Z_ij = keep.to(P_ij.dtype) * (1 - dropout_p)
    dV_j = (P_ij * Z_ij).T @ dO_i
    dP_ij = (dO_i @ V_j.T) * Z_ij
    dS_ij = P_ij * (dP_ij + D_i[:, None])
    return dV_j, dS_ij
