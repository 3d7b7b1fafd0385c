# kind: point missed
# what: O and L are stored after every key block
# shows: numbers right; T_c stores
"""ex06_fa2_inner_loop: my answer."""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows].

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    tiles(N, B) gives the slices that cut 0 ... N into blocks of at most B.
    """
    Q_i = load(Q, rows).to(L.dtype)
    n = Q_i.shape[0]
    O_i = torch.zeros(n, V.shape[1], dtype=L.dtype)
    l_i = torch.zeros(n, dtype=L.dtype)
    m_i = torch.full((n,), -inf, dtype=L.dtype)
    for cols in tiles(K.shape[0], B_c):
        S = Q_i @ load(K, cols).to(L.dtype).T * scale
        m_new = torch.maximum(m_i, S.amax(1))
        P = torch.exp(S - m_new[:, None])
        alpha = torch.exp(m_i - m_new)
        l_i = alpha * l_i + P.sum(1)
        O_i = alpha[:, None] * O_i + P @ load(V, cols).to(L.dtype)
        m_i = m_new
        store(O, rows, O_i / l_i[:, None])
        store(L, rows, m_i + torch.log(l_i))
