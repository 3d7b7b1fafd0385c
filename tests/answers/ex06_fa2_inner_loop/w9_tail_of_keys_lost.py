# kind: one mistake
# what: own loop over N_k // B_c whole blocks: the short last key block is never visited (must be rounded up, or tiles())
# shows: B_c does not divide N_k; with N_k < B_c no key is visited at all (0/0)
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
    N_k = K.shape[0]
    T_c = N_k // B_c
    B_r = rows.stop - rows.start

    Q_i = load(Q, rows).to(L.dtype)
    O_i = torch.zeros((B_r, V.shape[1]), dtype=L.dtype)
    l_i = torch.zeros((B_r, 1), dtype=L.dtype)
    m_i = torch.full((B_r, 1), -inf, dtype=L.dtype)

    for j in range(T_c):
        block = slice(j * B_c, (j + 1) * B_c)
        K_j = load(K, block).to(L.dtype)
        V_j = load(V, block).to(L.dtype)
        S_ij = scale * (Q_i @ K_j.T)
        m_new = torch.maximum(m_i, S_ij.amax(dim=-1, keepdim=True))
        P_ij = torch.exp(S_ij - m_new)
        alpha = torch.exp(m_i - m_new)
        l_i = alpha * l_i + P_ij.sum(dim=-1, keepdim=True)
        O_i = alpha * O_i + P_ij @ V_j
        m_i = m_new

    store(O, rows, O_i / l_i)
    store(L, rows, (m_i + torch.log(l_i)).squeeze(-1))
