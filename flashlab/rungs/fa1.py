"""FlashAttention-1, forward: each key block stays on chip while all queries pass; O, l and m travel through HBM."""

import torch
from torch import inf

from flashlab.memory import kernel, load, store, tiles
from flashlab.tiles import hidden, keep_masks, prepare
from flashlab.validate import check_bool


def fa1_forward(Q, K, V, *, causal=False, scale=None, B_r=None, B_c=None, dropout_p=0.0, rng_state=None,
                return_lm=False):
    """Exact attention that never stores S: key blocks outside, query blocks inside.

    Shapes:  with return_lm: O, l (N_q,), m (N_q,), the sums and maxima that the backward of FA1 starts from
    Causal:  tiles are masked, and none is skipped, as published
    Dropout: rng_state is a torch.Generator's get_state(), on Q's device. The same state and tile sizes draw the same
             mask again: j outer, i inner
    Traffic: reads N_k·(d + d_v) + T_c·N_q·(d + d_v + 2), writes (T_c + 1)·N_q·(d_v + 2) + N_q   [elements]
    Source:  Dao et al. 2022, arXiv:2205.14135, Algorithm 2, with the running maximum in place of the tile's own
    New:     against online_softmax: blocks of queries and keys instead of one of each
    """
    check_bool(return_lm=return_lm)
    shift, scale, acc, B_r, B_c = prepare(Q, K, V, causal, scale, B_r, B_c)
    draw = keep_masks(dropout_p, rng_state, Q.device, acc)

    O = torch.zeros(Q.shape[0], V.shape[-1], dtype=acc, device=Q.device)        # (N_q, d_v)  the running output
    l = torch.zeros(Q.shape[0], dtype=acc, device=Q.device)                     # (N_q,)
    m = torch.full((Q.shape[0],), -inf, dtype=acc, device=Q.device)             # (N_q,)  -inf: below any score
    L = Q.new_empty(Q.shape[0], dtype=acc)                                      # (N_q,)
    with kernel("fa1_forward", Q=Q, K=K, V=V, O=O, l=l, m=m, L=L):
        for cols in tiles(K.shape[0], B_c):            # j, outer
            _key_block(Q, K, V, O, l, m, L, cols, B_r, shift, scale, draw, dropout_p)
    if K.shape[0] == 0:
        L.fill_(-inf)                                  # no key step came by to store it
    O = O.to(Q.dtype)
    return (O, l, m) if return_lm else (O, L)


def _key_block(Q, K, V, O, l, m, L, cols, B_r, shift, scale, draw, dropout_p):
    """Key block j stays on chip while every query block passes by, with its O_i, l_i and m_i."""
    K_j = load(K, cols).to(O.dtype)                        # (B_c, d)
    V_j = load(V, cols).to(O.dtype)                        # (B_c, d_v)
    for rows in tiles(Q.shape[0], B_r):                    # i, inner
        Q_i = load(Q, rows).to(O.dtype)                    # (B_r, d)
        O_i = load(O, rows)                                # (B_r, d_v)  normalised over the keys seen so far
        l_i, m_i = load(l, rows), load(m, rows)            # (B_r,)
        O_i, l_i, m_i = _step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden(rows, cols, shift, Q.device),
                              draw(rows, cols), dropout_p)
        store(O, rows, O_i)
        store(l, rows, l_i)
        store(m, rows, m_i)
        if cols.stop == len(K):                            # l_i and m_i are final
            store(L, rows, m_i + torch.log(l_i))           # log 0 = -inf where no key is visible
        del Q_i, O_i, l_i, m_i                             # the next query block needs their place on chip


def _step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden_ij=None, keep_ij=None, dropout_p=0.0):
    """Add key block j to the running softmax of query block i."""
    S_ij = Q_i @ K_j.T * scale                             # (B_r, B_c)
    if hidden_ij is not None:
        S_ij = S_ij.masked_fill(hidden_ij, -inf)           # (B_r, B_c)

    m_new = torch.maximum(m_i, S_ij.amax(-1))              # (B_r,)
    m_safe = m_new.masked_fill(m_new == -inf, 0)           # (B_r,)      no visible key yet: -inf − -inf would be NaN
    alpha = torch.exp(m_i - m_safe)                        # (B_r,)      0 the first time: m_i = -inf
    P_ij = torch.exp(S_ij - m_safe[:, None])               # (B_r, B_c)
    l_new = alpha * l_i + P_ij.sum(-1)                     # (B_r,)
    if keep_ij is not None:
        P_ij = P_ij * keep_ij / (1 - dropout_p)            # after the sum: dropout acts on P, not on L
    l_safe = l_new.masked_fill(l_new == 0, 1)              # (B_r,)      no visible key: O_i stays 0
    O_i = ((alpha * l_i)[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]    # (B_r, d_v)  undo one division, divide anew
    return O_i, l_new, m_new
