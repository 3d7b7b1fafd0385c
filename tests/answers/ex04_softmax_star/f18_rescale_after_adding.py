# kind: one mistake
# what: O = (O + P V) * alpha: the factor for the old units hits the new tile too; it should be O * alpha + P V
# shows: more than one key block and a new row maximum in a later one
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
    S0 = Q @ K[:B_c].T / d ** 0.5
    m = S0.amax(1, keepdim=True)
    P0 = torch.exp(S0 - m)
    l = P0.sum(1, keepdim=True)
    O = P0 @ V[:B_c]
    for n in range(B_c, K.shape[0], B_c):
        S = Q @ K[n:n + B_c].T / d ** 0.5
        m_new = torch.maximum(m, S.amax(1, keepdim=True))
        alpha = torch.exp(m - m_new)
        P = torch.exp(S - m_new)
        l = l * alpha + P.sum(1, keepdim=True)
        O = (O + P @ V[n:n + B_c]) * alpha
        m = m_new
    return O / l
