"""ex11_dropout · dropout's mask and scale, backwards

Chapter 11 · difficulty 3 of 5 · 20 minutes

In the forward, dropout sets weights to 0 with probability p and divides the others by 1 − p, after the softmax. Going
back through a tile, the same weights are dropped, for the mask can be drawn again.

    P_ij (B_r, B_c)  dO_i (B_r, d_v)  V_j (B_c, d_v)  D_i (B_r,)  keep (B_r, B_c)  ->  dV_j (B_c, d_v), dS_ij (B_r, B_c)

    forward:    Z_ij = keep / (1 − p)        O_i = Σ_j (P_ij ∘ Z_ij) V_j

P_ij is a tile of the softmax over all keys, as it was before dropout; keep is True where a weight stayed; p is
dropout_p, from 0 to less than 1. dO_i is the gradient of O_i, and D_i = rowsum(dO_i ∘ O_i) comes from the O_i that
dropout went into. dV_j is what this tile adds to the gradient of V_j, dS_ij the gradient of this tile of the scores.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, autograd and its kernels, the finished function from flashlab or solutions/.

Hint: which P met V in the forward, and which P did the softmax give? Each has its place.
"""

import torch


def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    """(this tile's part of dV_j, dS_ij)."""
    # your turn: Z_ij, dV_j, dP_ij, dS_ij
    raise NotImplementedError("ex11_dropout: Z_ij, dV_j, dP_ij, dS_ij")
