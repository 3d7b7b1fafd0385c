# kind: two mistakes
# what: l_i is not rescaled when the maximum rises, and L uses log2 in place of the natural logarithm
# shows: two or more key blocks with a rising maximum: O too small; L wrong wherever l_i != 1
"""ex06_fa2_inner_loop · one query block of FlashAttention-2"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Fills O[rows] and L[rows]."""
    Q_i = load(Q, rows).to(L.dtype)
    O_i = torch.zeros(len(Q_i), V.shape[-1], dtype=L.dtype)
    l_i = torch.zeros(len(Q_i), dtype=L.dtype)
    m_i = torch.full((len(Q_i),), -inf, dtype=L.dtype)
    for cols in tiles(len(K), B_c):
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        S_ij = Q_i @ K_j.T * scale
        m_new = torch.maximum(m_i, S_ij.amax(dim=1))
        P_ij = torch.exp(S_ij - m_new[:, None])
        l_i += P_ij.sum(dim=1)
        O_i = O_i * torch.exp(m_i - m_new)[:, None] + P_ij @ V_j
        m_i = m_new
    store(O, rows, O_i / l_i[:, None])
    store(L, rows, m_i + torch.log2(l_i))
