# kind: right
# what: the two uses of the mask by torch.where, no Z matrix; each weight divided by 1 − p where kept
# shows: where(keep, x / (1 − p), 0) is x∘Z; dtype of the inputs is kept; p = 0 needs no special case
"""ex11_dropout · dropout's mask and scale, backwards

Chapter 11 · difficulty 3 of 5 · 20 minutes

In the forward, dropout sets weights to 0 with probability p and divides the others by 1 − p, after the softmax. Going back
through a tile, the same weights are dropped, for the mask can be drawn again.

    P_ij (B_r, B_c)   dO_i (B_r, d_v)   V_j (B_c, d_v)   D_i (B_r,)   keep (B_r, B_c)   ->   dV_j (B_c, d_v), dS_ij (B_r, B_c)

    forward:    Z_ij = keep / (1 − p)        O_i = Σ_j (P_ij ∘ Z_ij) V_j

P_ij is a tile of the softmax over all keys, as it was before dropout; keep is True where a weight stayed; p is dropout_p, from
0 to less than 1. dO_i is the gradient of O_i, and D_i = rowsum(dO_i ∘ O_i) comes from the O_i that dropout went into.
dV_j is what this tile adds to the gradient of V_j, dS_ij the gradient of this tile of the scores.
Tensors are float32 or float64, all of them alike, and no size is 0.

Not allowed: changing the inputs, autograd, the finished function from flashlab or solutions/.

Hint: which P met V in the forward, and which P did the softmax give? Each has its place.
"""

import torch


def drop(X, keep, p):
    """X ∘ Z: what is kept grows, the rest is 0."""
    return torch.where(keep, X / (1.0 - p), torch.zeros_like(X))


def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    """(this tile's part of dV_j, dS_ij)."""
    met_V = drop(P_ij, keep, dropout_p)             # the P that went into O = P V
    dV_j = met_V.transpose(0, 1).mm(dO_i)
    d_met_V = dO_i.mm(V_j.transpose(0, 1))
    dP_ij = drop(d_met_V, keep, dropout_p)          # back through the same mask
    dS_ij = P_ij * dP_ij - P_ij * D_i.unsqueeze(-1)
    return dV_j, dS_ij
