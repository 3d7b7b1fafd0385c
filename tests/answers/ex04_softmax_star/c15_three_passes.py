# kind: right
# what: three passes over the key blocks: the row maximum, then the sum of exponentials, then the output, already divided
# shows: within the contract: more passes are allowed, no tensor has more than B_c columns of scores; scores of hundreds, short last block
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

import math

import torch

inf = float("inf")


def attention_by_tiles(Q, K, V, B_c):
    """softmax(Q Kᵀ / √d) V, at most B_c keys at a time."""
    N_q, d = Q.shape
    starts = range(0, K.shape[0], B_c)

    def scores(start):
        return Q @ K[start : start + B_c].T / math.sqrt(d)

    m = torch.full((N_q, 1), -inf)
    for start in starts:
        m = torch.maximum(m, scores(start).max(dim=1, keepdim=True).values)

    l = torch.zeros(N_q, 1)
    for start in starts:
        l += torch.exp(scores(start) - m).sum(dim=1, keepdim=True)

    O = torch.zeros(N_q, V.shape[1])
    for start in starts:
        P = torch.exp(scores(start) - m) / l
        O += P @ V[start : start + B_c]
    return O
