# kind: right
# what: a column of ones is appended to V_j, so the sum of the weights rides along as the last column of O and is rescaled with it
# shows: running maximum in each row, one division at the end; the widest score tensor is N_q by B_c

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
    n, d = Q.shape
    ol = Q.new_zeros(n, V.shape[1] + 1)                  # O and l side by side
    m = Q.new_full((n, 1), -inf)
    for a in range(0, K.shape[0], B_c):
        k, v = K[a:a + B_c], V[a:a + B_c]
        s = torch.einsum("qd,kd->qk", Q, k) / d ** 0.5
        top = torch.max(m, s.max(1, keepdim=True).values)
        v1 = torch.cat([v, v.new_ones(len(v), 1)], dim=1)
        ol = ol * (m - top).exp() + (s - top).exp() @ v1
        m = top
    return ol[:, :-1] / ol[:, -1:]
