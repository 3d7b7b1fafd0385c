# kind: point missed
# what: P_ij and dO_i are overwritten to save buffers, as one would in C: the caller's P_ij comes back dropped and its dO_i scaled; copies should be changed instead
# shows: compare the inputs before and after: P_ij is changed wherever keep is False or p > 0, dO_i when p > 0; the returned numbers are right
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
    softmax = P_ij.clone()                   # needed again below
    dO_i /= 1 - dropout_p                    # the scale once, on the smaller matrix
    P_ij *= keep                             # P_ij is now the one that met V
    dV_j = P_ij.T @ dO_i
    dS_ij = dO_i @ V_j.T                     # dP
    dS_ij *= keep
    dS_ij -= D_i[:, None]
    dS_ij *= softmax
    return dV_j, dS_ij
