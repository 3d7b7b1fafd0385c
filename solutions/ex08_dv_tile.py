"""ex08_dv_tile · P again, and one tile's part of dV

Chapter 08 · difficulty 3 of 5 · 15 minutes

FlashAttention does not store P. Its backward pass computes each tile of P again, from Q, K and L, and uses it first for
dV.

    Q_i (B_r, d)   K_j (B_c, d)   dO_i (B_r, d_v)   L_i (B_r,)   ->   P_ij (B_r, B_c), dV_j (B_c, d_v)

P_ij is a tile of the softmax of Q Kᵀ · scale over all keys; L_i is each row's logsumexp. Return P_ij and this tile's
part of dV_j; the caller sums over i.

hidden is a (B_r, B_c) mask, True where the key is hidden, or None. A row that sees no key at all has L_i = -inf, and
its weights are 0. Scores lie between −1000 and 1000; scale is any finite number. Tensors are float32, and no size is 0.

Not allowed: changing the inputs, autograd and its kernels, the finished function from flashlab or solutions/.

Hint: O = P V is a matrix product. Which of its two gradients is dV? And what is -inf − (-inf)?
"""

import torch

inf = float("inf")


def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
    """(P_ij, this tile's part of dV_j)."""
    # >>> your turn: the tile of P, its mask, this tile's part of dV
    S_ij = Q_i @ K_j.T * scale                                      # (B_r, B_c)
    if hidden is not None:
        S_ij = S_ij.masked_fill(hidden, -inf)
    L_safe = L_i.masked_fill(L_i == -inf, 0)                        # (B_r,)  no visible key: -inf − -inf would be NaN
    P_ij = torch.exp(S_ij - L_safe[:, None])                        # (B_r, B_c)
    return P_ij, P_ij.T @ dO_i                                      # (B_c, d_v)
    # <<<
