# kind: one mistake
# what: a single maximum for the whole tile (S_j.max()) instead of one for each row (amax(-1)); all rows share one running number
# shows: rows whose scores lie more than about 100 (float32) below those of another row underflow: 0 / 0 is NaN

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
    d = Q.shape[-1]
    O = torch.zeros(Q.shape[0], V.shape[-1], dtype=Q.dtype, device=Q.device)
    l = torch.zeros(Q.shape[0], dtype=Q.dtype, device=Q.device)
    m = torch.tensor(-inf, dtype=Q.dtype, device=Q.device)
    for start in range(0, K.shape[0], B_c):
        stop = min(start + B_c, K.shape[0])
        S_j = Q @ K[start:stop].T / d**0.5
        m_new = torch.maximum(m, S_j.max())
        alpha = torch.exp(m - m_new)
        P_j = torch.exp(S_j - m_new)
        l = alpha * l + P_j.sum(-1)
        O = alpha * O + P_j @ V[start:stop]
        m = m_new
    return O / l[:, None]
