# kind: one mistake
# what: d is taken from V's columns, so the scores are divided by the root of d_v instead of d
# shows: d != d_v

"""ex04_softmax_star · repair the tile-wise softmax*

Chapter 04 · difficulty 3 of 5 · 25 minutes

This is attention by key blocks, and it is wrong: each tile is shifted by its own maximum, and the tiles are added up as if
they were in the same units.

    O = 0
    for each key block j:
        S_j = Q K_jᵀ / √d
        O   = O + exp(S_j − rowmax(S_j)) V_j            # softmax*
    return O

Repair it. Keep the loop over blocks of at most B_c keys: no tensor of N_k columns may appear.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)
Scores lie between −1000 and 1000.

Not allowed: changing the inputs, a tensor of N_q by N_k, a library's attention (F.scaled_dot_product_attention), the
finished function from flashlab or solutions/.

Hint: two things are missing. One concerns every tile but the first, the other a single tile too.
"""

import math

import torch

inf = float("inf")


def attention_by_tiles(Q, K, V, B_c):
    """softmax(Q Kᵀ / √d) V, at most B_c keys at a time."""
    N_q = Q.size(0)
    N_k, d = V.size()
    O = torch.zeros((N_q, d), dtype=Q.dtype)
    row_max = torch.full((N_q, 1), -inf, dtype=Q.dtype)
    row_sum = torch.zeros((N_q, 1), dtype=Q.dtype)

    j = 0
    while j < N_k:
        end = min(j + B_c, N_k)
        S = torch.matmul(Q, K[j:end].transpose(0, 1)) / math.sqrt(d)
        new_max = torch.maximum(row_max, S.max(dim=1, keepdim=True).values)
        old_scale = torch.exp(row_max - new_max)
        P = torch.exp(S - new_max)
        O.mul_(old_scale).add_(torch.matmul(P, V[j:end]))
        row_sum.mul_(old_scale).add_(P.sum(dim=1, keepdim=True))
        row_max = new_max
        j = end

    return O.div_(row_sum)
