# kind: point missed
# what: makes the scores tile by tile but glues them together, so that the maximum and the sum are those of the whole row: S is there after all
# shows: N_k > B_c: a tensor of N_q by N_k exists
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
    d = Q.shape[1]
    scores = []
    for K_j in torch.split(K, B_c):
        scores.append(Q @ K_j.T / d ** 0.5)
    S = torch.cat(scores, dim=1)

    m = S.max(dim=1, keepdim=True).values
    l = torch.exp(S - m).sum(dim=1, keepdim=True)

    O = torch.zeros(Q.shape[0], V.shape[1])
    for S_j, V_j in zip(scores, torch.split(V, B_c)):
        O = O + torch.exp(S_j - m) / l @ V_j
    return O
