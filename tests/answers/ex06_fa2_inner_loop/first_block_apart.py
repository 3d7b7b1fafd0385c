# kind: right
# what: the first key block starts the sums, the others are added; columns with keepdim, scale put on Q_i once
# shows: one load of Q_i, K and V each once, one store of O and of L; sums in L.dtype for 16-bit, float32 and float64

"""ex06_fa2_inner_loop · one query block of FlashAttention-2

Chapter 06 · difficulty 4 of 5 · 30 minutes

One program of FA2: query block i stays on chip, the key blocks j = 0, 1, ... pass by, O[rows] and L[rows] are written
once. HBM is touched through load and store only, and each byte is counted: Q[rows] is read once, K and V are read once
per program.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)   L (N_q,), the natural-log logsumexp of each row

The scores are Q Kᵀ · scale. O_i may be divided once, after the last block: that is what FA2 changes in the arithmetic.
Scores lie between −1000 and 1000; scale is any number.
Q, K, V and O are float16, float32 or float64, L is float32 (float64 with those). No size is 0.

Not allowed: changing the inputs, more than B_c keys at a time, a second load of a key block, a store in each step, the
finished function from flashlab or solutions/.

Hint: write the case of a single key block first. What of O_i and l_i is stale once a second one raises the maximum?
"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def scores_and_values(q, K, V, cols):
    k = load(K, cols).to(q.dtype)
    v = load(V, cols).to(q.dtype)
    return q @ k.T, v


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows]."""
    q = load(Q, rows).to(L.dtype) * scale
    first, *others = tiles(K.shape[0], B_c)

    s, v = scores_and_values(q, K, V, first)
    m = s.amax(1, keepdim=True)
    p = torch.exp(s - m)
    l = p.sum(1, keepdim=True)
    o = p @ v

    for cols in others:
        s, v = scores_and_values(q, K, V, cols)
        higher = torch.maximum(m, s.amax(1, keepdim=True))
        stale = torch.exp(m - higher)
        p = torch.exp(s - higher)
        l = l * stale + p.sum(1, keepdim=True)
        o = o * stale + p @ v
        m = higher

    store(O, rows, o / l)
    store(L, rows, (m + l.log()).squeeze(1))
