# kind: one mistake
# what: the reference is the newest tile's own maximum, never the largest so far: where that falls, exp(m − m_new) grows beyond float32
# shows: scores in the hundreds, with a later tile whose maximum lies more than 88 below an earlier one's: inf and NaN
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
    O = torch.zeros(N_q, V.shape[1])
    l = torch.zeros(N_q)
    m = torch.full((N_q,), -inf)
    for j in range(0, K.shape[0], B_c):
        S_j = Q @ K[j:j + B_c].T / d ** 0.5
        m_j = S_j.max(dim=1).values
        P_j = torch.exp(S_j - m_j[:, None])
        alpha = torch.exp(m - m_j)                         # from the old tile's units to the new one's
        O = alpha[:, None] * O + P_j @ V[j:j + B_c]
        l = alpha * l + P_j.sum(dim=1)
        m = m_j
    return O / l[:, None]
