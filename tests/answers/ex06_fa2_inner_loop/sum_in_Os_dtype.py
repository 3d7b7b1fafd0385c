# kind: one mistake
# what: O_i is a buffer in O's dtype and updated in place, so 16-bit runs round every partial sum to 16 bits; it should be L.dtype
# shows: float16 or bfloat16 with several key blocks; in float16 the undivided sum overflows where it passes 65504

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
    n = rows.stop - rows.start
    Q_i = load(Q, rows).to(L.dtype)
    O_i = torch.zeros((n, O.shape[1]), dtype=O.dtype, device=O.device)
    l_i = torch.zeros((n, 1), dtype=L.dtype, device=L.device)
    m_i = torch.full((n, 1), -inf, dtype=L.dtype, device=L.device)

    for block in tiles(K.shape[0], B_c):
        K_j = load(K, block).to(L.dtype)
        V_j = load(V, block).to(L.dtype)
        S = Q_i @ K_j.T * scale
        m_old, m_i = m_i, torch.maximum(m_i, S.max(dim=1, keepdim=True)[0])
        P = torch.exp(S - m_i)
        c = torch.exp(m_old - m_i)
        l_i = c * l_i + P.sum(dim=1, keepdim=True)
        O_i *= c
        O_i += P @ V_j

    store(O, rows, O_i / l_i)
    store(L, rows, (m_i + torch.log(l_i)).squeeze(1))
