# kind: right
# what: long and plain: a loop over the rows, a row without keys is left at zero, only the keys that are seen are exponentiated
# shows: within the contract: own buffers, no loop is forbidden; hidden scores never reach exp
"""ex08_dv_tile · P again, and one tile's part of dV

Chapter 08 · difficulty 3 of 5 · 20 minutes

The backward pass of FlashAttention has no P: it makes each tile of it again, from Q, K and L. The first use of the tile is dV.

    Q_i (B_r, d)   K_j (B_c, d)   dO_i (B_r, d_v)   L_i (B_r,)   ->   P_ij (B_r, B_c), dV_j (B_c, d_v)

P_ij is the softmax of Q Kᵀ · scale, normalised over all keys, of which this tile shows a few; L_i is each row's logsumexp.
dV_j is this tile's part: the sum over i is made outside.

hidden is a (B_r, B_c) mask, True where the key is hidden, or None. A row that sees no key at all has L_i = -inf; its weights
are 0.
Scores lie between −1000 and 1000; scale is any number.

Not allowed: changing the inputs, autograd, the finished function from flashlab or solutions/.

Hint: O = P V is a matrix product. Which of its two gradients is dV? And what is -inf − (-inf)?
"""

import torch

inf = float("inf")


def weights_of_row(scores, logsumexp, seen):
    """exp(scores - logsumexp) at the keys that are seen, 0 elsewhere."""
    weights = torch.zeros_like(scores)
    if logsumexp == -inf:
        return weights
    weights[seen] = (scores[seen] - logsumexp).exp()
    return weights


def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
    """(P_ij, this tile's part of dV_j)."""
    B_r = Q_i.shape[0]
    B_c = K_j.shape[0]
    P_ij = Q_i.new_zeros(B_r, B_c)
    dV_j = dO_i.new_zeros(B_c, dO_i.shape[1])
    for r in range(B_r):
        scores = (K_j @ Q_i[r]) * scale                      # (B_c,)
        if hidden is None:
            seen = torch.ones(B_c, dtype=torch.bool, device=Q_i.device)
        else:
            seen = ~hidden[r]
        P_ij[r] = weights_of_row(scores, L_i[r], seen)
        dV_j += P_ij[r, :, None] * dO_i[r, None, :]
    return P_ij, dV_j
