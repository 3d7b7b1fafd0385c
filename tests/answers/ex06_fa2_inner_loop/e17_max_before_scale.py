# kind: one mistake
# what: the running maximum is taken of the unscaled scores and scaled afterwards; with scale < 0 that is the row's minimum (m must be the maximum of S * scale)
# shows: negative scale with scores more than about 90 apart in a row: exp overflows, O is nan and L is inf; with scale >= 0 all is right
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
    B_r = Q_i.shape[0]
    O_i = torch.zeros((B_r, V.shape[1]), dtype=L.dtype)
    l_i = torch.zeros(B_r, dtype=L.dtype)
    m_i = None                                    # maximum of Q K^T, not scaled yet
    for cols in tiles(K.shape[0], B_c):
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        QK = Q_i @ K_j.T
        m_j = QK.max(dim=1).values
        m_new = m_j if m_i is None else torch.maximum(m_i, m_j)
        # scale once, inside the exponent: saves a pass over the tile
        P = torch.exp((QK - m_new[:, None]) * scale)
        if m_i is not None:
            alpha = torch.exp((m_i - m_new) * scale)
            O_i = O_i * alpha[:, None]
            l_i = l_i * alpha
        O_i = O_i + P @ V_j
        l_i = l_i + P.sum(dim=1)
        m_i = m_new
    store(O, rows, O_i / l_i[:, None])
    store(L, rows, m_i * scale + torch.log(l_i))
