# kind: right
# what: three passes over the key blocks: first the row maximum, then the sum, then the output with finished weights
# shows: more than one pass is allowed; never more than B_c keys of scores; the short last block is min(...)
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


def _blocks(N_k, B_c):
    first = 0
    while first < N_k:
        yield first, min(first + B_c, N_k)
        first += B_c


def _scores(Q, K, a, b):
    return (Q @ K[a:b].T) / math.sqrt(Q.shape[1])


def attention_by_tiles(Q, K, V, B_c):
    """softmax(Q Kᵀ / √d) V, at most B_c keys at a time."""
    N_q, N_k = Q.shape[0], K.shape[0]

    # pass 1: the largest score of each query
    m = Q.new_full((N_q, 1), -inf)
    for a, b in _blocks(N_k, B_c):
        tile_max = _scores(Q, K, a, b).amax(dim=1, keepdim=True)
        m = torch.maximum(m, tile_max)

    # pass 2: the sum of the exponentials
    l = Q.new_zeros((N_q, 1))
    for a, b in _blocks(N_k, B_c):
        l += torch.exp(_scores(Q, K, a, b) - m).sum(dim=1, keepdim=True)

    # pass 3: the values
    O = Q.new_zeros((N_q, V.shape[1]))
    for a, b in _blocks(N_k, B_c):
        P = torch.exp(_scores(Q, K, a, b) - m) / l
        O += P @ V[a:b]
    return O
