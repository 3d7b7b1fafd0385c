# kind: one mistake
# what: the dropped P takes P's place, and dS is made with it
# shows: dS wherever a weight was dropped: 0 instead of -P D, and kept ones are 1/(1-p) too large
"""ex11_dropout · dropout's mask and scale, backwards"""


def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    """(this tile's part of dV_j, dS_ij)."""
    Z_ij = keep.to(P_ij.dtype) / (1 - dropout_p)
    P_ij = P_ij * Z_ij
    dV_j = P_ij.T @ dO_i
    dP_ij = Z_ij * (dO_i @ V_j.T)
    return dV_j, P_ij * (dP_ij - D_i[:, None])
