# kind: right
# what: L = -inf is replaced by 0 in a copy, hidden scores are -inf before the exponential, dV by a transposed product
# shows: blind rows give exp(-inf - 0) = 0; hidden scores far above L cannot overflow; works without a mask

"""ex08_dv_tile · P again, and one tile's part of dV

Chapter 08 · difficulty 3 of 5 · 20 minutes

The backward pass of FlashAttention has no P: it makes each tile of it again, from Q, K and L. The first use of the tile is dV.

    Q_i (B_r, d)   K_j (B_c, d)   dO_i (B_r, d_v)   L_i (B_r,)   ->   P_ij (B_r, B_c), dV_j (B_c, d_v)

P_ij is the softmax of Q Kᵀ · scale, normalised over all keys, of which this tile shows a few; L_i is each row's logsumexp.
dV_j is this tile's part: the sum over i is made outside.

hidden is a (B_r, B_c) mask, True where the key is hidden, or None. A row that sees no key at all, which takes a mask, has
L_i = -inf; its weights are 0.
Scores lie between −1000 and 1000; scale is any finite number.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, autograd, the finished function from flashlab or solutions/.

Hint: O = P V is a matrix product. Which of its two gradients is dV? And what is -inf − (-inf)?
"""

import torch

inf = float("inf")


def _without_infinities(L):
    return torch.where(torch.isneginf(L), torch.zeros_like(L), L)


def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
    """(P_ij, this tile's part of dV_j)."""
    exponents = torch.mm(Q_i, K_j.t()) * scale
    if hidden is not None:
        exponents = torch.where(hidden, torch.full_like(exponents, -inf), exponents)
    weights = torch.exp(exponents - _without_infinities(L_i).reshape(-1, 1))
    return weights, torch.mm(weights.t(), dO_i)
