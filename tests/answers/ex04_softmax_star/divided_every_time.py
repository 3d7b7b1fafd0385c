# kind: one mistake
# what: O is divided by the running l in every block, but the earlier division is never undone (O would have to be multiplied by the old l first, or divided once at the end)
# shows: more than one block
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
    N_k = K.shape[0]
    O = torch.zeros((N_q, V.shape[1]))
    m = -inf * torch.ones(N_q)
    l = torch.zeros(N_q)

    n_blocks = (N_k + B_c - 1) // B_c
    for j in range(n_blocks):
        idx = slice(j * B_c, min((j + 1) * B_c, N_k))
        S = Q @ K[idx].T / d ** 0.5

        m_old = m
        m = torch.maximum(m_old, S.max(dim=1)[0])
        alpha = torch.exp(m_old - m)
        P = torch.exp(S - m[:, None])

        l = alpha * l + P.sum(dim=1)
        O = alpha[:, None] * O + P @ V[idx]
        O = O / l[:, None]                       # normalise, so that the weights sum to 1
    return O
