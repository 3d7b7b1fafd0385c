"""FlashAttention-1, backward: P again, by tiles; a key block collects its dK and dV, and dQ travels through HBM."""

import torch
from torch import inf

from flashlab.memory import kernel, load, store, tiles
from flashlab.tiles import hidden, keep_masks, prepare_backward


def fa1_backward(Q, K, V, O, dO, l, m, *, causal=False, scale=None, B_r=None, B_c=None, dropout_p=0.0, rng_state=None):
    """The gradients of attention without S or P in HBM: key blocks outside, query blocks inside.

    Shapes:  l and m (N_q,) are what fa1_forward(..., return_lm=True) returned with O
    Causal:  tiles are masked, and none is skipped, as published
    Dropout: with the rng_state, B_r and B_c of the forward the same mask is drawn again, j outer and i inner
    Traffic: reads N_k·(d + d_v) + T_c·N_q·(2·d + 2·d_v + 2), writes N_k·(d + d_v) + (T_c + 1)·N_q·d   [elements]
    Source:  Dao et al. 2022, arXiv:2205.14135, Algorithm 4 without the zeros of its line 5, which would not be read
    New:     against naive_backward: tiles; P again from Q, K, m and l, and D from O instead of from P
    """
    shift, scale, acc, B_r, B_c = prepare_backward(Q, K, V, O, dO, causal, scale, B_r, B_c, l=l, m=m)
    draw = keep_masks(dropout_p, rng_state, Q.device, acc)

    dQ = torch.zeros(Q.shape, dtype=acc, device=Q.device)                       # (N_q, d)  a sum over the key blocks
    dK = K.new_empty(K.shape)                                                   # (N_k, d)
    dV = V.new_empty(V.shape)                                                   # (N_k, d_v)
    with kernel("fa1_backward", Q=Q, K=K, V=V, O=O, dO=dO, l=l, m=m, dQ=dQ, dK=dK, dV=dV):
        for cols in tiles(K.shape[0], B_c):            # j, outer
            _key_block(Q, K, V, O, dO, l, m, dQ, dK, dV, cols, B_r, shift, scale, draw, dropout_p)
    return dQ.to(Q.dtype), dK, dV


def _key_block(Q, K, V, O, dO, l, m, dQ, dK, dV, cols, B_r, shift, scale, draw, dropout_p):
    """Key block j stays on chip, and so do the sums for its gradients, while every query block passes by."""
    K_j = load(K, cols).to(l.dtype)                        # (B_c, d)
    V_j = load(V, cols).to(l.dtype)                        # (B_c, d_v)
    dK_j = torch.zeros_like(K_j)                           # (B_c, d)
    dV_j = torch.zeros_like(V_j)                           # (B_c, d_v)
    for rows in tiles(Q.shape[0], B_r):                    # i, inner
        Q_i = load(Q, rows).to(l.dtype)                    # (B_r, d)
        dO_i = load(dO, rows).to(l.dtype)                  # (B_r, d_v)
        D_i = (dO_i * load(O, rows)).sum(-1)               # (B_r,)      rowsum(P∘dP) over all keys, from O
        l_i, m_i = load(l, rows), load(m, rows)            # (B_r,)
        P_ij, dS_ij = _tile(Q_i, K_j, V_j, dO_i, l_i, m_i, D_i, scale, hidden(rows, cols, shift, Q.device),
                            draw(rows, cols), dropout_p)
        dV_j += P_ij.T @ dO_i
        dK_j += scale * dS_ij.T @ Q_i
        dQ_i = load(dQ, rows)                              # (B_r, d)    the sum so far
        dQ_i += scale * dS_ij @ K_j
        store(dQ, rows, dQ_i)
        del Q_i, dO_i, l_i, m_i, D_i, P_ij, dS_ij, dQ_i    # the next query block needs their place on chip
    store(dK, cols, dK_j)
    store(dV, cols, dV_j)


def _tile(Q_i, K_j, V_j, dO_i, l_i, m_i, D_i, scale, hidden_ij=None, keep_ij=None, dropout_p=0.0):
    """P_ij once more, as it met V_j in the forward, and dS_ij. l and m are final now: there is nothing to rescale."""
    S_ij = Q_i @ K_j.T * scale                             # (B_r, B_c)
    if hidden_ij is not None:
        S_ij = S_ij.masked_fill(hidden_ij, -inf)           # (B_r, B_c)
    m_safe = m_i.masked_fill(m_i == -inf, 0)               # (B_r,)      no visible key: -inf − -inf would be NaN
    l_safe = l_i.masked_fill(l_i == 0, 1)                  # (B_r,)      no visible key: P_ij stays 0
    P_ij = torch.exp(S_ij - m_safe[:, None]) / l_safe[:, None]    # (B_r, B_c)
    del S_ij                                               # dP_ij needs its place on chip
    dP_ij = dO_i @ V_j.T                                   # (B_r, B_c)
    if keep_ij is None:
        return P_ij, P_ij * (dP_ij - D_i[:, None])
    kept = keep_ij / (1 - dropout_p)                       # (B_r, B_c)  0 or what keeps the mean
    dP_ij *= kept
    return P_ij * kept, P_ij * (dP_ij - D_i[:, None])
