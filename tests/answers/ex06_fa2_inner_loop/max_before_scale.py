# kind: one mistake
# what: the maximum is taken of Q K^T and scaled afterwards: with a negative scale that is the minimum of the scores
# shows: scale < 0 and scores that span more than about 88 (float32): exp overflows, O NaN, L inf
"""ex06_fa2_inner_loop · one query block of FlashAttention-2"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Fills O[rows] and L[rows]."""
    Q_i = load(Q, rows).to(L.dtype)
    B_r = len(Q_i)
    O_i = torch.zeros(B_r, V.shape[1], dtype=L.dtype)
    l_i = torch.zeros(B_r, dtype=L.dtype)
    m_i = None                                             # in units of Q K^T, before the scale
    for cols in tiles(len(K), B_c):
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        S_ij = Q_i @ K_j.T
        m_new = S_ij.amax(1) if m_i is None else torch.maximum(m_i, S_ij.amax(1))
        P_ij = torch.exp((S_ij - m_new[:, None]) * scale)
        if m_i is not None:
            alpha = torch.exp((m_i - m_new) * scale)
            l_i, O_i = l_i * alpha, O_i * alpha[:, None]
        l_i = l_i + P_ij.sum(1)
        O_i = O_i + P_ij @ V_j
        m_i = m_new
    store(O, rows, O_i / l_i[:, None])
    store(L, rows, m_i * scale + torch.log(l_i))
