# kind: one mistake
# what: every tile is made a softmax of its own (weights sum to 1), and the tiles' outputs are averaged by their numbers of keys
# shows: more than one key block: a block with large scores counts no more than one with small ones
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

import math

import torch

inf = float("inf")


def attention_by_tiles(Q, K, V, B_c):
    """softmax(Q Kᵀ / √d) V, at most B_c keys at a time."""
    N_k, d = K.shape
    O = torch.zeros(len(Q), V.shape[1])
    for start in range(0, N_k, B_c):
        K_j, V_j = K[start:start + B_c], V[start:start + B_c]
        S_j = Q @ K_j.T / math.sqrt(d)
        P_j = torch.exp(S_j - S_j.amax(1, keepdim=True))
        P_j = P_j / P_j.sum(1, keepdim=True)
        O += len(K_j) / N_k * (P_j @ V_j)
    return O
