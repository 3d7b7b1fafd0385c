# kind: one mistake
# what: the old maximum is overwritten before the correction exp(m_old - m_new) is taken, so the correction is always 1
# shows: more than one block, where a later block raises a row's maximum

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

import torch

inf = float("inf")


def attention_by_tiles(Q, K, V, B_c):
    """softmax(Q Kᵀ / √d) V, at most B_c keys at a time."""
    scale = Q.shape[-1] ** -0.5
    O = torch.zeros(Q.shape[0], V.shape[-1], dtype=Q.dtype, device=Q.device)
    l = torch.zeros(Q.shape[0], dtype=Q.dtype, device=Q.device)
    m = torch.full_like(l, -inf)
    for K_j, V_j in zip(K.split(B_c), V.split(B_c)):
        S_j = (Q @ K_j.T) * scale
        m = torch.maximum(m, S_j.amax(dim=1))
        P_j = torch.exp(S_j - m[:, None])
        alpha = torch.exp(m - torch.maximum(m, S_j.amax(dim=1)))
        O = alpha[:, None] * O + P_j @ V_j
        l = alpha * l + P_j.sum(dim=1)
    return O / l[:, None]
