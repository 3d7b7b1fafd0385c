# kind: one mistake
# what: exp2 with scores times log2(e), as fast kernels do, but L = m + log2(l) stays in base 2; it should be multiplied by ln 2
# shows: L everywhere (by the factor 1/ln 2 = 1.44), O is right

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
LOG2_E = 1.4426950408889634


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows].

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    tiles(N, B) gives the slices that cut 0 ... N into blocks of at most B.
    """
    Q_i = load(Q, rows).to(L.dtype) * (scale * LOG2_E)
    m_i = torch.full((len(Q_i),), -inf, dtype=L.dtype, device=Q.device)
    l_i = torch.zeros_like(m_i)
    O_i = torch.zeros(len(Q_i), V.shape[1], dtype=L.dtype, device=Q.device)
    for cols in tiles(len(K), B_c):
        S_ij = Q_i @ load(K, cols).to(L.dtype).T
        m_new = torch.maximum(m_i, S_ij.amax(1))
        P_ij = torch.exp2(S_ij - m_new[:, None])
        alpha = torch.exp2(m_i - m_new)
        l_i = l_i * alpha + P_ij.sum(1)
        O_i = O_i * alpha[:, None] + P_ij @ load(V, cols).to(L.dtype)
        m_i = m_new
    store(O, rows, O_i / l_i[:, None])
    store(L, rows, m_i + torch.log2(l_i))
