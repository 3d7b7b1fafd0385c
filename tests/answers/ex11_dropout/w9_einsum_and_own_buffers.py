# kind: right
# what: einsum for the products, then in place on buffers of its own; the factor 1 / (1 − p) is pulled out of the products
# shows: contract kept: P without Z in front of the bracket, Z on P for dV and on dP for dS; inputs untouched; p = 0 works
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


def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    """(this tile's part of dV_j, dS_ij)."""
    grow = 1.0 / (1.0 - dropout_p)

    dV = torch.einsum("rc,rv->cv", P_ij.masked_fill(~keep, 0.0), dO_i)
    dV.mul_(grow)

    dS = torch.einsum("rv,cv->rc", dO_i, V_j)        # gradient of the weights that met V
    dS.masked_fill_(~keep, 0.0).mul_(grow)           # gradient of the softmax's weights
    dS.sub_(D_i.unsqueeze(1)).mul_(P_ij)             # gradient of the scores
    return dV, dS
