# kind: right
# what: einsum for every product
"""ex08_ds_tile: my answer."""

import torch


def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    """(this tile's part of dQ_i, this tile's part of dK_j)."""
    dP = torch.einsum("rv,cv->rc", dO_i, V_j)
    dS = torch.einsum("rc,rc->rc", P_ij, dP.sub(D_i.unsqueeze(1))).mul(scale)
    return torch.einsum("rc,cd->rd", dS, K_j), torch.einsum("rc,rd->cd", dS, Q_i)
