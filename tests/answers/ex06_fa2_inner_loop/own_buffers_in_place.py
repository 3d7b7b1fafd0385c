# kind: right
# what: O_i, l_i and m_i are buffers changed in place, the scores' tile too; plain range loop with min
# shows: nothing but own tiles is written; each block loaded once, stores after the loop only

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


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows]."""
    N_k = len(K)
    Q_i = load(Q, rows).to(L.dtype)
    B_r = Q_i.size(0)
    O_i = torch.zeros(B_r, V.size(1), dtype=L.dtype)
    l_i = torch.zeros(B_r, dtype=L.dtype)
    m_i = torch.full((B_r,), -inf, dtype=L.dtype)

    for j in range(0, N_k, B_c):
        block = slice(j, min(j + B_c, N_k))
        S = Q_i @ load(K, block).to(L.dtype).T
        S *= scale
        m_new = torch.maximum(S.amax(-1), m_i)
        S -= m_new[:, None]
        S.exp_()                                           # from here on S is P
        m_i -= m_new
        m_i.exp_()                                         # from here on m_i is alpha
        l_i *= m_i
        l_i += S.sum(-1)
        O_i *= m_i[:, None]
        O_i += S @ load(V, block).to(L.dtype)
        m_i = m_new

    O_i /= l_i[:, None]
    l_i.log_()
    l_i += m_i
    store(O, rows, O_i)
    store(L, rows, l_i)
