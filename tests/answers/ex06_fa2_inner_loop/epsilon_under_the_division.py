# kind: one mistake
# what: O_i is divided by l_i + 1e-5 "for safety"; l_i is at least 1, so every row comes out too small by up to 1e-5
# shows: O too small by 1e-5 / l_i of itself: float64 anywhere, float32 most with one key or one key that dominates
"""ex06_fa2_inner_loop · one query block of FlashAttention-2"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Fills O[rows] and L[rows]."""
    Q_i = load(Q, rows).to(L.dtype)
    O_i = torch.zeros(Q_i.shape[0], V.shape[1], dtype=L.dtype)
    l_i = torch.zeros(Q_i.shape[0], 1, dtype=L.dtype)
    m_i = torch.full((Q_i.shape[0], 1), -inf, dtype=L.dtype)
    for cols in tiles(K.shape[0], B_c):
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        S = torch.einsum("rd,cd->rc", Q_i, K_j) * scale
        m_new = torch.maximum(m_i, S.amax(1, keepdim=True))
        a = torch.exp(m_i - m_new)
        P = torch.exp(S - m_new)
        O_i = a * O_i + torch.einsum("rc,cv->rv", P, V_j)
        l_i = a * l_i + P.sum(1, keepdim=True)
        m_i = m_new
    store(O, rows, O_i / (l_i + 1e-5))
    store(L, rows, (m_i + torch.log(l_i))[:, 0])
