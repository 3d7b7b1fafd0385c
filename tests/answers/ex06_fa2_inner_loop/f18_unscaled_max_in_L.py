# kind: one mistake
# what: m is the maximum of the raw products Q K^T and the scale goes into the exponent only; L adds the raw m, not scale * m
# shows: any scale other than 1: L is wrong (and with scale < 0 the "maximum" is the minimum, so exp may overflow)
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
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows]."""
    q = load(Q, rows).to(L.dtype)
    o = torch.zeros((q.shape[0], V.shape[1]), dtype=L.dtype)
    l = torch.zeros(q.shape[0], dtype=L.dtype)
    m = torch.full((q.shape[0],), -inf, dtype=L.dtype)
    for cols in tiles(K.shape[0], B_c):
        k = load(K, cols).to(L.dtype)
        v = load(V, cols).to(L.dtype)
        s = q @ k.T
        m_new = torch.maximum(m, s.amax(-1))
        # as in the fast kernels: the scale goes into the exponent
        alpha = torch.exp((m - m_new) * scale) if cols.start > 0 else torch.zeros_like(m)
        p = torch.exp((s - m_new[:, None]) * scale)
        l = l * alpha + p.sum(-1)
        o = o * alpha[:, None] + p @ v
        m = m_new
    store(O, rows, o / l[:, None])
    store(L, rows, m + torch.log(l))
