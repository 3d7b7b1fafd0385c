# kind: one mistake
# what: the running maximum is taken of the unscaled Q K^T and scale multiplies only inside exp: exp(scale * (S - m)); with a negative scale that is the minimum, and the maximum must be taken of S * scale
# shows: scale < 0 (or 0): exp(scale * (-inf - m)) is inf or nan at the first block
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
    Q_i = load(Q, rows).to(L.dtype)
    O_i = torch.zeros(len(Q_i), V.shape[1], dtype=L.dtype)
    l_i = torch.zeros(len(Q_i), dtype=L.dtype)
    m_i = torch.full((len(Q_i),), -inf, dtype=L.dtype)

    for cols in tiles(len(K), B_c):
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        S = Q_i @ K_j.T
        m_new = torch.maximum(m_i, S.amax(dim=-1))
        P = torch.exp(scale * (S - m_new[:, None]))           # one multiplication less for each score
        alpha = torch.exp(scale * (m_i - m_new))
        l_i = alpha * l_i + P.sum(dim=-1)
        O_i = alpha[:, None] * O_i + P @ V_j
        m_i = m_new

    store(O, rows, O_i / l_i[:, None])
    store(L, rows, scale * m_i + torch.log(l_i))
