"""ex08_ds_tile · one tile of dS, and what it gives to dQ and dK

Chapter 08 · difficulty 3 of 5 · 15 minutes

P_ij has been computed again and D_i is prepared. Take the gradient of one tile back through the softmax, and on to Q
and K.

    Q_i (B_r, d)   K_j (B_c, d)   V_j (B_c, d_v)   P_ij (B_r, B_c)   dO_i (B_r, d_v)   D_i (B_r,)
    ->   dQ_i (B_r, d), dK_j (B_c, d): this tile's parts

The forward pass was S = scale · Q Kᵀ, P = softmax(S), O = P V; dO is the gradient of the loss with respect to O, and
D_i = Σ_j P_ij dP_ij, over all keys.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, autograd and its kernels, the finished function from flashlab or solutions/.

Hint: go back one step at a time: from dO to dP, from dP to dS, from dS to dQ and dK. Each but the second is a matrix
product.
"""

import torch


def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    """(this tile's part of dQ_i, this tile's part of dK_j)."""
    # >>> your turn: the gradient through P, through the softmax, and on to Q and K
    dP_ij = dO_i @ V_j.T                                            # (B_r, B_c)
    dS_ij = P_ij * (dP_ij - D_i[:, None])                           # (B_r, B_c)
    dQ_i = scale * (dS_ij @ K_j)                                    # (B_r, d)
    dK_j = scale * (dS_ij.T @ Q_i)                                  # (B_c, d)
    return dQ_i, dK_j
    # <<<
