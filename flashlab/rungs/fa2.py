"""FlashAttention-2, forward: each query block walks the keys once and writes its output once."""

import torch
from torch import inf

from flashlab.memory import kernel, load, store, tiles
from flashlab.tiles import all_hidden, hidden, prepare


def fa2_forward(Q, K, V, *, causal=False, scale=None, B_r=None, B_c=None):
    """Exact attention that never stores S.

    Traffic: reads N_q·d + T_r·N_k·(d + d_v), fewer if causal, writes N_q·(d_v + 1)   [elements]
    Source:  Dao 2023, arXiv:2307.08691, Algorithm 1 (line 10 there inverts a factor that must multiply)
    New:     against fa1: the loops trade places, and the division by l leaves the inner one
    """
    shift, scale, acc, B_r, B_c = prepare(Q, K, V, causal, scale, B_r, B_c)

    O = Q.new_empty(Q.shape[0], V.shape[-1])                                    # (N_q, d_v)
    L = Q.new_empty(Q.shape[0], dtype=acc)                                      # (N_q,)
    with kernel("fa2_forward", Q=Q, K=K, V=V, O=O, L=L):
        for rows in tiles(Q.shape[0], B_r):            # i, outer: on a GPU these programs run at the same time
            _program(Q, K, V, O, L, rows, B_c, shift, scale)
    return O, L


def _program(Q, K, V, O, L, rows, B_c, shift, scale):
    """One query block i from start to end: its O_i, l_i and m_i never leave the chip."""
    Q_i = load(Q, rows).to(L.dtype)                                                 # (B_r, d)
    O_i = Q_i.new_zeros(len(Q_i), V.shape[-1])                                      # (B_r, d_v)
    l_i = Q_i.new_zeros(len(Q_i))                                                   # (B_r,)
    m_i = Q_i.new_full((len(Q_i),), -inf)                                           # (B_r,)  -inf: below any score

    for cols in tiles(K.shape[0], B_c):                # j, inner
        if all_hidden(rows, cols, shift):
            continue                                   # no query of block i sees a key of block j
        K_j = load(K, cols).to(L.dtype)                # (B_c, d)
        V_j = load(V, cols).to(L.dtype)                # (B_c, d_v)
        O_i, l_i, m_i = _step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden(rows, cols, shift, Q.device))
        del K_j, V_j                                   # the next key block needs their place on chip

    l_safe = l_i.masked_fill(l_i == 0, 1)              # (B_r,)  no visible key: O_i stays 0
    store(O, rows, O_i / l_safe[:, None])
    store(L, rows, m_i + torch.log(l_i))               # the row's logsumexp; log 0 = -inf where no key is visible


def _step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden_ij=None):
    """Add key block j to the running softmax of query block i."""
    S_ij = Q_i @ K_j.T * scale                             # (B_r, B_c)
    if hidden_ij is not None:
        S_ij = S_ij.masked_fill(hidden_ij, -inf)           # (B_r, B_c)

    m_new = torch.maximum(m_i, S_ij.amax(-1))              # (B_r,)
    m_safe = m_new.masked_fill(m_new == -inf, 0)           # (B_r,)      no visible key yet: -inf − -inf would be NaN
    alpha = torch.exp(m_i - m_safe)                        # (B_r,)      0 the first time: m_i = -inf
    P_ij = torch.exp(S_ij - m_safe[:, None])               # (B_r, B_c)
    l_i = alpha * l_i + P_ij.sum(-1)                       # (B_r,)
    O_i = alpha[:, None] * O_i + P_ij @ V_j                # (B_r, d_v)  divided by l_i after the loop
    return O_i, l_i, m_new
