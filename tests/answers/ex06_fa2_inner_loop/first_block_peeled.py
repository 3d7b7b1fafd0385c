# kind: right
# what: the first key block is written by itself, the others are added with a rescaling; K_j and V_j are given up as soon as they are used
# shows: Q once, each K and V block once, one store of O and of L, sums in L.dtype, the scale is applied before the maximum

"""ex06_fa2_inner_loop · one query block of FlashAttention-2

Chapter 06 · difficulty 4 of 5 · 30 minutes

One program of FA2: query block i stays on chip, the key blocks j = 0, 1, ... pass by, O[rows] and L[rows] are written
once. HBM is touched through load and store only, and each byte is counted: Q[rows] is read once, K and V are read once
per program.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)   L (N_q,), the natural-log logsumexp of each row

The scores are Q Kᵀ · scale. O_i may be divided once, after the last block: that is what FA2 changes in the arithmetic.
Scores lie between −1000 and 1000; scale is any number.

Not allowed: changing the inputs, more than B_c keys at a time, a second load of a key block, a store in each step, the
finished function from flashlab or solutions/.

Hint: write the case of a single key block first. What of O_i and l_i is stale once a second one raises the maximum?
"""

import torch

from flashlab.memory import load, store, tiles


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows].

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    tiles(N, B) gives the slices that cut 0 ... N into blocks of at most B.
    """
    def bring(T, part):
        return load(T, part).to(L.dtype)

    head, *rest = tiles(K.shape[0], B_c)

    Q_i = bring(Q, rows)
    Q_i *= scale

    # one key block: plain softmax without its division
    P = Q_i @ bring(K, head).T
    m = P.amax(dim=1, keepdim=True)
    P -= m
    P.exp_()
    l = P.sum(dim=1, keepdim=True)
    acc = P @ bring(V, head)

    # the others
    for cols in rest:
        P = Q_i @ bring(K, cols).T
        higher = torch.maximum(m, P.amax(dim=1, keepdim=True))
        m -= higher
        m.exp_()                      # from here to the last line: the factor for what is old
        l *= m
        acc *= m
        P -= higher
        P.exp_()
        l += P.sum(dim=1, keepdim=True)
        acc += P @ bring(V, cols)
        m = higher

    acc /= l
    store(O, rows, acc)
    l.log_()
    l += m
    store(L, rows, l[:, 0])
