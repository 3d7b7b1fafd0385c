# kind: two mistakes
# what: (1) divides the scores by √d_v instead of √d; (2) l is converted when the maximum rises, O is not (should be alpha * O)
# shows: (1) d_v != d, one tile already; (2) two tiles, the second with the larger maximum

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
Tensors are float32 or float64, all of them alike, and no size is 0.

Not allowed: changing the inputs, a tensor of N_q by N_k, a library's attention (F.scaled_dot_product_attention), the
finished function from flashlab or solutions/.

Hint: two things are missing. One concerns every tile but the first, the other a single tile too.
"""

import torch

inf = float("inf")


def attention_by_tiles(Q, K, V, B_c):
    """softmax(Q Kᵀ / √d) V, at most B_c keys at a time."""
    N_q = Q.shape[0]
    N_k, d = V.shape
    O = torch.zeros((N_q, d), dtype=Q.dtype)
    l = torch.zeros((N_q,), dtype=Q.dtype)
    m = torch.full((N_q,), -inf, dtype=Q.dtype)
    for j in range(0, N_k, B_c):
        S_j = Q @ K[j:j + B_c].T / d ** 0.5
        m_new = torch.maximum(m, S_j.amax(dim=1))
        P_j = torch.exp(S_j - m_new[:, None])
        l = l * torch.exp(m - m_new) + P_j.sum(dim=1)
        O = O + P_j @ V[j:j + B_c]
        m = m_new
    return O / l[:, None]
