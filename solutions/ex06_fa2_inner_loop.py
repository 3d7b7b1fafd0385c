"""ex06_fa2_inner_loop · one query block of FlashAttention-2

Chapter 06 · difficulty 4 of 5 · 30 minutes

Write one program of FA2. Query block i stays on chip while the key blocks j = 0, 1, ... pass by; O[rows] and L[rows]
are stored once, at the end. Use load and store only. Every byte is counted: load Q[rows] once, and each block of K and
V once.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)   L (N_q,), the natural-log logsumexp of each row

The scores are Q Kᵀ · scale. Divide O_i once, after the last block: FA2 saves the other divisions.
Scores lie between −1000 and 1000; scale is any finite number.
Q, K, V and O are float16 or float32, L is float32. No size is 0.

Not allowed: changing the inputs, more than B_c keys at a time, a second load of a key block, a store in each step, the
finished function from flashlab or solutions/.

Hint: write it for a single key block first. Which of O_i and l_i must change when a second block raises the maximum?
"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows].

    Convert tiles to L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    tiles(N, B) gives the slices that cut 0 ... N into blocks of at most B.
    """
    # >>> your turn: load Q_i, walk the key blocks with O_i, l_i and m_i, store O[rows] and L[rows]
    Q_i = load(Q, rows).to(L.dtype)                                 # (B_r, d)
    O_i = torch.zeros(len(Q_i), V.shape[-1], dtype=L.dtype)         # (B_r, d_v)
    l_i = torch.zeros(len(Q_i), dtype=L.dtype)                      # (B_r,)
    m_i = torch.full((len(Q_i),), -inf, dtype=L.dtype)              # (B_r,)  -inf: below any score
    for cols in tiles(len(K), B_c):                                 # j
        K_j = load(K, cols).to(L.dtype)                             # (B_c, d)
        V_j = load(V, cols).to(L.dtype)                             # (B_c, d_v)
        S_ij = Q_i @ K_j.T * scale                                  # (B_r, B_c)
        m_new = torch.maximum(m_i, S_ij.amax(-1))                   # (B_r,)
        alpha = torch.exp(m_i - m_new)                              # (B_r,)  0 the first time
        P_ij = torch.exp(S_ij - m_new[:, None])                     # (B_r, B_c)
        l_i = alpha * l_i + P_ij.sum(-1)                            # (B_r,)
        O_i = alpha[:, None] * O_i + P_ij @ V_j                     # (B_r, d_v)
        m_i = m_new
    store(O, rows, O_i / l_i[:, None])
    store(L, rows, m_i + torch.log(l_i))
    # <<<
