# kind: right
# what: one small pullback for each step of the forward, composed from last to first: P V, softmax, scaled product
# shows: D_i comes from outside, so a tile of a longer row is right; scale once in dQ and once in dK, for any sign; own buffers only
"""ex08_ds_tile · one tile of dS, and what it gives to dQ and dK

Chapter 08 · difficulty 3 of 5 · 20 minutes

With P_ij made again and D_i prepared, a tile knows all it needs to push the gradient through the softmax and on to Q and K.

    Q_i (B_r, d)   K_j (B_c, d)   V_j (B_c, d_v)   P_ij (B_r, B_c)   dO_i (B_r, d_v)   D_i (B_r,)
    ->   dQ_i (B_r, d), dK_j (B_c, d): this tile's parts

The forward pass was S = scale · Q Kᵀ, P = softmax(S), O = P V; dO is the gradient of the loss with respect to O, and
D_i = Σ_j P_ij dP_ij, over all keys.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, autograd, the finished function from flashlab or solutions/.

Hint: go back one step at a time: from dO to dP, from dP to dS, from dS to dQ and dK. Each but the second is a matrix product.
"""

import torch


def pull_PV(V, dO):
    """O = P V: the part for P."""
    return torch.einsum("iv,jv->ij", dO, V)


def pull_softmax(P, D, dP):
    """P = softmax(S), D its row sums of P dP."""
    return P * dP - P * D.unsqueeze(-1)


def pull_QK(Q, K, scale, dS):
    """S = scale · Q Kᵀ."""
    dZ = scale * dS                                      # Z = Q Kᵀ
    return torch.einsum("ij,jd->id", dZ, K), torch.einsum("ij,id->jd", dZ, Q)


def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    """(this tile's part of dQ_i, this tile's part of dK_j)."""
    dP = pull_PV(V_j, dO_i)
    dS = pull_softmax(P_ij, D_i, dP)
    return pull_QK(Q_i, K_j, scale, dS)
