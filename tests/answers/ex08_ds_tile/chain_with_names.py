# kind: right
# what: every step of the chain by name, dS built as P∘dP − P∘D in a buffer of its own, scale applied once to dS
# shows: the formulas of the chapter in another order; buffers are fresh, inputs stay
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


def grad_of_A(dC, B):
    """C = A B: the gradient of A."""
    return torch.mm(dC, B.transpose(0, 1))


def grad_of_B(A, dC):
    """C = A B: the gradient of B."""
    return torch.mm(A.transpose(0, 1), dC)


def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    """(this tile's part of dQ_i, this tile's part of dK_j)."""
    # O = P V
    dP = grad_of_A(dO_i, V_j)
    # P = softmax(S)
    dS = P_ij * dP
    dS.sub_(P_ij * D_i.view(-1, 1))
    # S = scale * (Q K^T): the gradient of the bare product is scale times that of S
    dS.mul_(scale)
    K_T = K_j.transpose(0, 1)
    dQ = grad_of_A(dS, K_T)
    dK_T = grad_of_B(Q_i, dS)
    return dQ, dK_T.transpose(0, 1).contiguous()
