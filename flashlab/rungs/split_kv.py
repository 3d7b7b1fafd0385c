"""Flash-Decoding, forward: the keys are split among programs, and a second kernel merges what they found."""

import torch
from torch import inf

from flashlab.memory import kernel, load, store, tiles
from flashlab.tiles import all_hidden, hidden, prepare
from flashlab.validate import check_positive


def split_kv_forward(Q, K, V, *, causal=False, scale=None, splits=4, B_r=None, B_c=None):
    """Exact attention in which the keys of a query block are shared out among programs.

    Splits:  the T_c key blocks in `splits` chunks, or T_c if that is less, that differ by a block at most
    Traffic: reads splits·N_q·d + T_r·N_k·(d + d_v), fewer if causal, and splits·N_q·(d_v + 1) to merge;
             writes (splits + 1)·N_q·(d_v + 1)   [elements]
    Source:  Dao, Haziza, Massa, Sizov 2023, Flash-Decoding for long-context inference
    New:     against fa2: the key blocks of a query block go to several programs; a second kernel merges their O and L
    """
    shift, scale, acc, B_r, B_c = prepare(Q, K, V, causal, scale, B_r, B_c)
    check_positive(splits=splits)

    N_q, blocks = Q.shape[0], tiles(K.shape[0], B_c)
    T_c, splits = len(blocks), min(splits, len(blocks))                             # no chunk is empty
    chunks = [blocks[T_c * s // splits:T_c * (s + 1) // splits] for s in range(splits)]
    O = Q.new_empty(N_q, V.shape[-1])                                               # (N_q, d_v)
    L = Q.new_empty(N_q, dtype=acc)                                                 # (N_q,)
    O_part = Q.new_empty(splits * N_q, V.shape[-1], dtype=acc)                      # (splits·N_q, d_v)
    L_part = Q.new_empty(splits * N_q, dtype=acc)                                   # (splits·N_q,)
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):             # on a GPU these programs run at the same time,
            for rows in tiles(N_q, B_r):               # i, outer: and so do these
                _program(Q, K, V, O_part, L_part, rows, s, chunk, shift, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        for rows in tiles(N_q, B_r):
            _merge(O_part, L_part, O, L, rows, splits)
    return O, L


def _program(Q, K, V, O_part, L_part, rows, s, chunk, shift, scale):
    """One query block i and one chunk s of the keys, as if there were no others: attention, finished and divided."""
    Q_i = load(Q, rows).to(L_part.dtype)                                            # (B_r, d)
    O_i = Q_i.new_zeros(len(Q_i), V.shape[-1])                                      # (B_r, d_v)
    l_i = Q_i.new_zeros(len(Q_i))                                                   # (B_r,)
    m_i = Q_i.new_full((len(Q_i),), -inf)                                           # (B_r,)  -inf: below any score

    for cols in chunk:                                 # j, inner: the blocks of this chunk alone
        if all_hidden(rows, cols, shift):
            continue                                   # no query of block i sees a key of block j
        K_j = load(K, cols).to(L_part.dtype)           # (B_c, d)
        V_j = load(V, cols).to(L_part.dtype)           # (B_c, d_v)
        O_i, l_i, m_i = _step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden(rows, cols, shift, Q.device))
        del K_j, V_j                                   # the next key block needs their place on chip

    l_safe = l_i.masked_fill(l_i == 0, 1)              # (B_r,)  no visible key: O_i stays 0
    part = _place(rows, s, len(Q))
    store(O_part, part, O_i / l_safe[:, None])
    store(L_part, part, m_i + torch.log(l_i))          # log 0 = -inf: a chunk of weight 0


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


def _merge(O_part, L_part, O, L, rows, splits):
    """Query block i of all chunks: the same running softmax, over chunks with L_s as the score and O_s as the value."""
    n = rows.stop - rows.start
    O_i = L.new_zeros(n, O.shape[-1])                                               # (B_r, d_v)
    l_i = L.new_zeros(n)                                                            # (B_r,)
    m_i = L.new_full((n,), -inf)                                                    # (B_r,)

    for s in range(splits):
        part = _place(rows, s, len(O))
        O_s = load(O_part, part)                                                    # (B_r, d_v)
        L_s = load(L_part, part)                                                    # (B_r,)
        m_new = torch.maximum(m_i, L_s)                                             # (B_r,)
        m_safe = m_new.masked_fill(m_new == -inf, 0)                                # (B_r,)  no visible key yet
        alpha = torch.exp(m_i - m_safe)                                             # (B_r,)
        p_s = torch.exp(L_s - m_safe)                                               # (B_r,)  the weight of chunk s
        l_i = alpha * l_i + p_s                                                     # (B_r,)
        O_i = alpha[:, None] * O_i + p_s[:, None] * O_s                             # (B_r, d_v)
        m_i = m_new

    l_safe = l_i.masked_fill(l_i == 0, 1)                                           # (B_r,)
    store(O, rows, O_i / l_safe[:, None])
    store(L, rows, m_i + torch.log(l_i))


def _place(rows, s, N_q):
    """Where chunk s has its rows of O_part and L_part."""
    return slice(s * N_q + rows.start, s * N_q + rows.stop)
