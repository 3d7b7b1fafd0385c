# kind: one mistake
# what: each block's softmax is finished by itself (divided by its own sum) and the blocks are averaged with their number of keys as weights; the weights should be each block's sum of exponentials in a common unit
# shows: more than one block, any scores that differ between blocks
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
    d = Q.shape[-1]
    N_k = K.shape[0]
    O = torch.zeros(Q.shape[0], V.shape[-1])
    for start in range(0, N_k, B_c):
        K_j = K[start:start + B_c]
        V_j = V[start:start + B_c]
        S_j = Q @ K_j.T / d**0.5
        E_j = torch.exp(S_j - S_j.max(dim=1, keepdim=True).values)
        O_j = (E_j / E_j.sum(dim=1, keepdim=True)) @ V_j       # the block's own average
        O = O + O_j * (len(K_j) / N_k)                         # a short last block counts for less
    return O
