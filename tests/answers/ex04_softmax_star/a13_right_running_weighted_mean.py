# kind: right
# what: a running weighted mean as in streaming statistics: O is at every moment the finished answer for the keys seen so far, old and new blocks are combined with the weights w_old/l and 1/l
# shows: the old weight is brought into the unit of the new maximum before it is compared with the new block's; no tensor has more than B_c columns of scores
"""ex04_softmax_star · repair the tile-wise softmax*

Chapter 04 · difficulty 3 of 5 · 25 minutes

This is attention by key blocks, and it is wrong: each tile is shifted by its own maximum, and the tiles are added up as if
they were in the same units.

    O = 0
    for each key block j:
        S_j = Q K_jᵀ / √d
        O   = O + exp(S_j − rowmax(S_j)) V_j            # softmax*
    return O

Repair it. Keep the loop over blocks of at most B_c keys: no tensor of scores may have N_k columns (K.T, a view, has no scores),
unless B_c is N_k or more. One pass over the keys is enough, more are allowed.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)
Scores lie between −1000 and 1000.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, a tensor of N_q by N_k, a library's attention (F.scaled_dot_product_attention), the
finished function from flashlab or solutions/.

Hint: two things are missing. One concerns every tile but the first, the other a single tile too.
"""

import torch

inf = float("inf")


def attention_by_tiles(Q, K, V, B_c):
    """softmax(Q Kᵀ / √d) V, at most B_c keys at a time."""
    N_q, d = Q.shape
    mean = torch.zeros(N_q, V.shape[1], device=Q.device)       # the weighted mean of the values so far
    weight = torch.zeros(N_q, 1, device=Q.device)              # total weight so far, in units of exp(top)
    top = torch.full((N_q, 1), -inf, device=Q.device)

    for K_j, V_j in zip(K.split(B_c), V.split(B_c)):
        S_j = Q @ K_j.T / d**0.5
        new_top = torch.maximum(top, S_j.amax(dim=1, keepdim=True))

        p = torch.exp(S_j - new_top)
        weight_old = weight * torch.exp(top - new_top)
        weight = weight_old + p.sum(dim=1, keepdim=True)

        mean = (weight_old / weight) * mean + (p / weight) @ V_j
        top = new_top
    return mean
