# kind: point missed
# what: a first walk over the keys for the maximum, a second for the sums: nothing to rescale, but K is loaded twice
# shows: numbers right; K is read twice per program (N_k * d elements more)
"""ex06_fa2_inner_loop · one query block of FlashAttention-2"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Fills O[rows] and L[rows]."""
    Q_i = load(Q, rows).to(L.dtype)
    m_i = torch.full((len(Q_i),), -inf, dtype=L.dtype)
    for cols in tiles(len(K), B_c):
        m_i = torch.maximum(m_i, (Q_i @ load(K, cols).to(L.dtype).T * scale).amax(1))

    O_i = torch.zeros(len(Q_i), V.shape[-1], dtype=L.dtype)
    l_i = torch.zeros(len(Q_i), dtype=L.dtype)
    for cols in tiles(len(K), B_c):
        P_ij = torch.exp(Q_i @ load(K, cols).to(L.dtype).T * scale - m_i[:, None])
        l_i += P_ij.sum(1)
        O_i += P_ij @ load(V, cols).to(L.dtype)
    store(O, rows, O_i / l_i[:, None])
    store(L, rows, m_i + torch.log(l_i))
