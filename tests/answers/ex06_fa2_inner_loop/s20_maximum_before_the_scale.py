# kind: one mistake
# what: the maximum is taken of the raw Q Kᵀ and scaled afterwards; with a negative scale that is the smallest score, and exp overflows. The maximum should be that of the scaled scores
# shows: negative scale with scores spread over more than about 88

"""ex06_fa2_inner_loop · one query block of FlashAttention-2

Chapter 06 · difficulty 4 of 5 · 30 minutes

One program of FA2: query block i stays on chip, the key blocks j = 0, 1, ... pass by, O[rows] and L[rows] are written
once. HBM is touched through load and store only, and each byte is counted: Q[rows] is read once, K and V are read once
per program.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)   L (N_q,), the natural-log logsumexp of each row

The scores are Q Kᵀ · scale. O_i may be divided once, after the last block: that is what FA2 changes in the arithmetic.
Scores lie between −1000 and 1000; scale is any finite number.
Q, K, V and O are float16 or float32, L is float32. No size is 0.

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
    Q_i = load(Q, rows).to(L.dtype)
    O_i = l_i = m_i = None
    for cols in tiles(K.shape[0], B_c):
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        raw = Q_i @ K_j.T
        top = raw.max(dim=1).values * scale
        if m_i is None:
            P = torch.exp(raw * scale - top[:, None])
            m_i, l_i, O_i = top, P.sum(1), P @ V_j
        else:
            m_new = torch.maximum(m_i, top)
            P = torch.exp(raw * scale - m_new[:, None])
            a = torch.exp(m_i - m_new)
            l_i = a * l_i + P.sum(1)
            O_i = a[:, None] * O_i + P @ V_j
            m_i = m_new
    store(O, rows, O_i / l_i[:, None])
    store(L, rows, m_i + l_i.log())
