# kind: right
# what: einsum, small functions, the two weights named apart (before and after dropout); inputs are only read
# shows: p = 0, a tile without a kept weight, one row, d_v of 1: all as the formula says
"""ex11_dropout · dropout's mask and scale, backwards

Chapter 11 · difficulty 3 of 5 · 20 minutes

In the forward, dropout sets weights to 0 with probability p and divides the others by 1 − p, after the softmax. Going back
through a tile, the same weights are dropped, for the mask can be drawn again.

    P_ij (B_r, B_c)   dO_i (B_r, d_v)   V_j (B_c, d_v)   D_i (B_r,)   keep (B_r, B_c)   ->   dV_j (B_c, d_v), dS_ij (B_r, B_c)

    forward:    Z_ij = keep / (1 − p)        O_i = Σ_j (P_ij ∘ Z_ij) V_j

P_ij is a tile of the softmax over all keys, as it was before dropout; keep is True where a weight stayed; p is dropout_p, from
0 to less than 1. dO_i is the gradient of O_i, and D_i = rowsum(dO_i ∘ O_i) comes from the O_i that dropout went into.
dV_j is what this tile adds to the gradient of V_j, dS_ij the gradient of this tile of the scores.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, autograd, the finished function from flashlab or solutions/.

Hint: which P met V in the forward, and which P did the softmax give? Each has its place.
"""


import torch


def survivors(keep, dropout_p, like):
    """Z_ij: 0 where dropped, 1 / (1 - p) where kept."""
    return torch.where(keep, torch.full_like(like, 1.0 / (1.0 - dropout_p)), torch.zeros_like(like))


def through_softmax(P, dP, D):
    """dS of a softmax whose row sums of P∘dP are known."""
    return torch.einsum("rc,rc->rc", P, dP - D.unsqueeze(1))


def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    """(this tile's part of dV_j, dS_ij)."""
    Z_ij = survivors(keep, dropout_p, P_ij)
    weights_that_met_V = torch.einsum("rc,rc->rc", P_ij, Z_ij)
    dV_j = torch.einsum("rc,rv->cv", weights_that_met_V, dO_i)
    gradient_of_those = torch.einsum("rv,cv->rc", dO_i, V_j)
    dP_ij = torch.einsum("rc,rc->rc", gradient_of_those, Z_ij)
    return dV_j, through_softmax(P_ij, dP_ij, D_i)
