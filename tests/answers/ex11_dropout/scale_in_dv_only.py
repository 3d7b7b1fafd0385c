# kind: one mistake
# what: on the way to dP the mask is applied, the 1 / (1 - p) is not
# shows: dS for every p > 0
"""ex11_dropout · dropout's mask and scale, backwards"""


def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    """(this tile's part of dV_j, dS_ij)."""
    mask = keep.to(P_ij.dtype)
    dV_j = (P_ij * mask / (1 - dropout_p)).T @ dO_i
    dP_ij = mask * (dO_i @ V_j.T)
    dS_ij = P_ij * (dP_ij - D_i[:, None])
    return dV_j, dS_ij
