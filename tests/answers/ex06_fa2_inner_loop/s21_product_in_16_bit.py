# kind: one mistake
# what: Q_i @ K_j.T is computed in the tiles' own dtype and turned into L.dtype afterwards; the tiles should be turned right after the load
# shows: float16 inputs: scores are rounded to 11 bits (off by up to 0.25 at 500), L and O are off by far more than O's rounding
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
    Q_i = load(Q, rows)
    B_r, d_v = Q_i.shape[0], V.shape[1]
    O_i = torch.zeros(B_r, d_v, dtype=L.dtype)
    l_i = torch.zeros(B_r, dtype=L.dtype)
    m_i = torch.full((B_r,), -inf, dtype=L.dtype)

    for cols in tiles(K.shape[0], B_c):
        S_ij = (Q_i @ load(K, cols).T).to(L.dtype) * scale    # into 32 bits before anything is summed
        m_new = torch.maximum(m_i, S_ij.amax(1))
        P_ij = torch.exp(S_ij - m_new[:, None])
        alpha = torch.exp(m_i - m_new)
        l_i = alpha * l_i + P_ij.sum(1)
        O_i = alpha[:, None] * O_i + P_ij @ load(V, cols).to(L.dtype)
        m_i = m_new

    store(O, rows, O_i / l_i[:, None])
    store(L, rows, m_i + torch.log(l_i))
