"""ex08_dv_tile · P again, and one tile's part of dV

Chapter 08 · difficulty 3 of 5 · 20 minutes

The backward pass of FlashAttention has no P: it makes each tile of it again, from Q, K and L. The first use of the tile
is dV.

    Q_i (B_r, d)   K_j (B_c, d)   dO_i (B_r, d_v)   L_i (B_r,)   ->   P_ij (B_r, B_c), dV_j (B_c, d_v)

P_ij is the softmax of Q Kᵀ · scale, normalised over all keys, of which this tile shows a few; L_i is each row's
logsumexp. dV_j is this tile's part: the sum over i is made outside.

hidden is a (B_r, B_c) mask, True where the key is hidden, or None. A row that sees no key at all, which takes a mask,
has L_i = -inf; its weights are 0. Scores lie between −1000 and 1000; scale is any finite number. Tensors are float32,
and no size is 0.

Not allowed: changing the inputs, autograd and its kernels, the finished function from flashlab or solutions/.

Hint: O = P V is a matrix product. Which of its two gradients is dV? And what is -inf − (-inf)?
"""

import torch

inf = float("inf")


def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
    """(P_ij, this tile's part of dV_j)."""
    # your turn: the tile of P, its mask, this tile's part of dV
    raise NotImplementedError("ex08_dv_tile: the tile of P, its mask, this tile's part of dV")
