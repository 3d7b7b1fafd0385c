# kind: one mistake
# what: dS is multiplied by scale and the products once more
# shows: scale != 1
"""ex08_ds_tile: my answer."""

import torch


def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    """(this tile's part of dQ_i, this tile's part of dK_j)."""
    dP = dO_i @ V_j.T
    dS = P_ij * (dP - D_i[:, None]) * scale
    return scale * dS @ K_j, scale * dS.T @ Q_i
