# kind: one mistake
# what: the maximum is that of Q K^T and scaled afterwards, exp((S - m) * scale); for a negative scale it should be the maximum of the scaled scores
# shows: scale < 0: the exponents are positive, they overflow for scores in the hundreds (O NaN, L inf or NaN)

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

inf = float("inf")


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows].

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    tiles(N, B) gives the slices that cut 0 ... N into blocks of at most B.
    """
    q = load(Q, rows).to(L.dtype)
    m = l = acc = None
    for cols in tiles(K.shape[0], B_c):
        k = load(K, cols).to(L.dtype)
        s = q @ k.T                                  # unscaled, the scale goes into the exponent
        if m is None:
            m_new = s.amax(dim=1)
        else:
            m_new = torch.maximum(m, s.amax(dim=1))
        p = torch.exp((s - m_new[:, None]) * scale)
        pv = p @ load(V, cols).to(L.dtype)
        if m is None:
            l, acc = p.sum(dim=1), pv
        else:
            alpha = torch.exp((m - m_new) * scale)
            l = alpha * l + p.sum(dim=1)
            acc = alpha[:, None] * acc + pv
        m = m_new
    store(O, rows, acc / l[:, None])
    store(L, rows, m * scale + torch.log(l))
