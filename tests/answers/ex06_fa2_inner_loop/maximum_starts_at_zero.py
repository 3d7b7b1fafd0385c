# kind: one mistake
# what: m_i starts at 0 and not at -inf, so the maximum can never be negative
# shows: rows whose scores are all below about -88 (float32): every weight underflows, O NaN, L -inf
"""ex06_fa2_inner_loop · one query block of FlashAttention-2"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Fills O[rows] and L[rows]."""
    Q_i = load(Q, rows).to(L.dtype)
    O_i = torch.zeros((len(Q_i), V.shape[-1]), dtype=L.dtype, device=Q.device)
    l_i = torch.zeros((len(Q_i),), dtype=L.dtype, device=Q.device)
    m_i = torch.zeros_like(l_i)
    for cols in tiles(K.shape[0], B_c):
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        S_ij = scale * (Q_i @ K_j.T)
        m_new = torch.maximum(m_i, S_ij.max(dim=-1).values)
        P_ij = torch.exp(S_ij - m_new[:, None])
        alpha = torch.exp(m_i - m_new)
        l_i = l_i * alpha + P_ij.sum(dim=-1)
        O_i = O_i * alpha[:, None] + P_ij @ V_j
        m_i = m_new
    store(O, rows, O_i / l_i[:, None])
    store(L, rows, m_i + l_i.log())
