# kind: one mistake
# what: the running maximum is taken of Q Kᵀ before the scale, (S − m)·scale goes into exp; it should be the maximum of the scaled scores
# shows: a negative scale with scores some hundred apart: the "maximum" is the smallest score, exp overflows, O is NaN and L is inf
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
    B_r, d_v = Q_i.size(0), V.size(1)
    O_i = Q_i.new_zeros(B_r, d_v)
    l_i = Q_i.new_zeros(B_r)
    m_i = Q_i.new_full((B_r,), -inf)            # running max of the raw products, as the CUDA kernels keep it

    for cols in tiles(K.size(0), B_c):
        K_j, V_j = load(K, cols).to(L.dtype), load(V, cols).to(L.dtype)
        raw = Q_i @ K_j.T
        m_next = torch.maximum(m_i, raw.amax(1))
        if cols.start > 0:                      # nothing to rescale at the first block
            alpha = torch.exp((m_i - m_next) * scale)
            l_i = l_i * alpha
            O_i = O_i * alpha.unsqueeze(1)
        P_ij = torch.exp((raw - m_next.unsqueeze(1)) * scale)       # one multiply for shift and scale
        l_i = l_i + P_ij.sum(1)
        O_i = O_i + P_ij @ V_j
        m_i = m_next

    store(O, rows, O_i / l_i.unsqueeze(1))
    store(L, rows, m_i * scale + torch.log(l_i))
