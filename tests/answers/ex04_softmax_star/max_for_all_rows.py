# kind: one mistake
# what: one maximum for the whole tile (S_j.max()), it should be one for each row
# shows: rows far apart, such as one with scores near 1000 and one near -1000: the lower row's weights all underflow, 0/0 = NaN

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
    N_q, d = Q.shape
    N_k = K.shape[0]
    m = torch.tensor(-inf, dtype=Q.dtype)
    l = torch.zeros(N_q, 1, dtype=Q.dtype)
    O = torch.zeros(N_q, V.shape[1], dtype=Q.dtype)
    for start in range(0, N_k, B_c):
        K_j = K[start:start + B_c]
        V_j = V[start:start + B_c]
        S_j = Q @ K_j.T / d ** 0.5
        m_new = torch.maximum(m, S_j.max())
        P_j = torch.exp(S_j - m_new)
        correction = torch.exp(m - m_new)
        l = l * correction + P_j.sum(dim=1, keepdim=True)
        O = O * correction + P_j @ V_j
        m = m_new
    return O / l
