# kind: one mistake
# what: D is made again from this tile, as if the tile were the whole row
# shows: dS where the tile does not hold all keys of its rows: D_i covers the others too
"""ex11_dropout · dropout's mask and scale, backwards"""


def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    """(this tile's part of dV_j, dS_ij)."""
    Z_ij = keep.to(P_ij.dtype) / (1 - dropout_p)
    dV_j = (P_ij * Z_ij).mT @ dO_i
    dP_ij = (dO_i @ V_j.mT) * Z_ij
    D_i = (P_ij * dP_ij).sum(-1)
    dS_ij = P_ij * (dP_ij - D_i[:, None])
    return dV_j, dS_ij
