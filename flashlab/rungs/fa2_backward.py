"""FlashAttention-2, backward: D first, once; then one kernel that adds to dQ in every step, or two that never do."""

import torch
from torch import inf

from flashlab.memory import kernel, load, store, tiles
from flashlab.tiles import all_hidden, hidden, prepare_backward


def fa2_backward(Q, K, V, O, dO, L, *, causal=False, scale=None, B_r=None, B_c=None):
    """The gradients of attention without S or P in HBM: key blocks outside, query blocks inside.

    Traffic: reads 2·N_q·d_v + N_k·(d + d_v) + T_c·N_q·(2·d + d_v + 2), the last term less if causal,
             writes N_q + N_k·(d + d_v) + (T_c + 1)·N_q·d, T_c likewise   [elements]
    Source:  Dao 2023, arXiv:2307.08691, Algorithm 2, without two loads of its line 9: O_i, which nothing uses, and
             dQ_i, which line 15 loads again
    New:     against fa1_backward: L instead of l and m; D once instead of in every step, so O leaves the loop; causal
             tiles skipped, which is ours
    """
    shift, scale, _, B_r, B_c = prepare_backward(Q, K, V, O, dO, causal, scale, B_r, B_c, L=L)
    D = _preprocess(O, dO, L, B_r)                                          # (N_q,)
    dQ = torch.zeros(Q.shape, dtype=L.dtype, device=Q.device)                   # (N_q, d)  a sum over the key blocks
    dK = K.new_empty(K.shape)                                                   # (N_k, d)
    dV = V.new_empty(V.shape)                                                   # (N_k, d_v)
    with kernel("fa2_backward", Q=Q, K=K, V=V, dO=dO, L=L, D=D, dQ=dQ, dK=dK, dV=dV):
        for cols in tiles(K.shape[0], B_c):            # j, outer
            _key_block(Q, K, V, dO, L, D, dQ, dK, dV, cols, B_r, shift, scale)
    return dQ.to(Q.dtype), dK, dV


def fa2_backward_two_pass(Q, K, V, O, dO, L, *, causal=False, scale=None, B_r=None, B_c=None):
    """The same gradients by two kernels: dK, dV with the key block fixed, then dQ with the query block fixed.

    Traffic: reads 2·N_q·d_v + N_k·(d + d_v) + T_c·N_q·(d + d_v + 2) + N_q·(d + d_v + 2) + T_r·N_k·(d + d_v), less if
             causal, writes N_q + N_k·(d + d_v) + N_q·d   [elements]
    New:     against fa2_backward: each gradient is written once, in a fixed order of additions; S and dP are computed
             twice, 7 matrix products a tile instead of 5
    """
    shift, scale, _, B_r, B_c = prepare_backward(Q, K, V, O, dO, causal, scale, B_r, B_c, L=L)
    D = _preprocess(O, dO, L, B_r)                                          # (N_q,)
    dQ = Q.new_empty(Q.shape)                                                   # (N_q, d)
    dK = K.new_empty(K.shape)                                                   # (N_k, d)
    dV = V.new_empty(V.shape)                                                   # (N_k, d_v)
    with kernel("fa2_backward_dkdv", Q=Q, K=K, V=V, dO=dO, L=L, D=D, dK=dK, dV=dV):
        for cols in tiles(K.shape[0], B_c):            # j, outer: K_j is fixed
            _key_block(Q, K, V, dO, L, D, None, dK, dV, cols, B_r, shift, scale)
    with kernel("fa2_backward_dq", Q=Q, K=K, V=V, dO=dO, L=L, D=D, dQ=dQ):
        for rows in tiles(Q.shape[0], B_r):            # i, outer: Q_i is fixed
            _query_block(Q, K, V, dO, L, D, dQ, rows, B_c, shift, scale)
    return dQ, dK, dV


def _preprocess(O, dO, L, B_r):
    """D = rowsum(dO∘O), (N_q,), a kernel of its own: every key block needs it, and it depends on none."""
    D = torch.empty_like(L)
    with kernel("fa2_backward_preprocess", O=O, dO=dO, D=D):
        for rows in tiles(O.shape[0], B_r):
            D_i = (load(dO, rows).to(D.dtype) * load(O, rows)).sum(-1)          # (B_r,)
            store(D, rows, D_i)
    return D


def _key_block(Q, K, V, dO, L, D, dQ, dK, dV, cols, B_r, shift, scale):
    """Key block j stays on chip, and so do the sums for its gradients. dQ is None where another kernel computes it."""
    K_j = load(K, cols).to(L.dtype)                        # (B_c, d)
    V_j = load(V, cols).to(L.dtype)                        # (B_c, d_v)
    dK_j = torch.zeros_like(K_j)                           # (B_c, d)
    dV_j = torch.zeros_like(V_j)                           # (B_c, d_v)
    for rows in tiles(Q.shape[0], B_r):                    # i, inner
        if all_hidden(rows, cols, shift):
            continue                                       # no query of block i sees a key of block j
        Q_i = load(Q, rows).to(L.dtype)                    # (B_r, d)
        dO_i = load(dO, rows).to(L.dtype)                  # (B_r, d_v)
        L_i, D_i = load(L, rows), load(D, rows)            # (B_r,)
        P_ij, dS_ij = _tile(Q_i, K_j, V_j, dO_i, L_i, D_i, scale, hidden(rows, cols, shift, Q.device))
        dV_j += P_ij.T @ dO_i
        dK_j += scale * dS_ij.T @ Q_i
        if dQ is not None:
            dQ_i = load(dQ, rows)                          # (B_r, d)    the sum so far
            dQ_i += scale * dS_ij @ K_j
            store(dQ, rows, dQ_i)
            del dQ_i
        del Q_i, dO_i, L_i, D_i, P_ij, dS_ij               # the next query block needs their place on chip
    store(dK, cols, dK_j)
    store(dV, cols, dV_j)


def _query_block(Q, K, V, dO, L, D, dQ, rows, B_c, shift, scale):
    """Query block i stays on chip, and so does its dQ_i, while the keys it sees pass by."""
    Q_i = load(Q, rows).to(L.dtype)                        # (B_r, d)
    dO_i = load(dO, rows).to(L.dtype)                      # (B_r, d_v)
    L_i, D_i = load(L, rows), load(D, rows)                # (B_r,)
    dQ_i = torch.zeros_like(Q_i)                           # (B_r, d)
    for cols in tiles(K.shape[0], B_c):                    # j, inner
        if all_hidden(rows, cols, shift):
            continue                                       # no query of block i sees a key of block j
        K_j = load(K, cols).to(L.dtype)                    # (B_c, d)
        V_j = load(V, cols).to(L.dtype)                    # (B_c, d_v)
        P_ij, dS_ij = _tile(Q_i, K_j, V_j, dO_i, L_i, D_i, scale, hidden(rows, cols, shift, Q.device))
        dQ_i += scale * dS_ij @ K_j
        del K_j, V_j, P_ij, dS_ij                          # the next key block needs their place on chip
    store(dQ, rows, dQ_i)


def _tile(Q_i, K_j, V_j, dO_i, L_i, D_i, scale, hidden_ij=None):
    """P_ij once more, already normalised, exp(S − L) = exp(S − m) / l, and dS_ij."""
    S_ij = Q_i @ K_j.T * scale                             # (B_r, B_c)
    if hidden_ij is not None:
        S_ij = S_ij.masked_fill(hidden_ij, -inf)           # (B_r, B_c)
    L_safe = L_i.masked_fill(L_i == -inf, 0)               # (B_r,)      no visible key: -inf − -inf would be NaN
    P_ij = torch.exp(S_ij - L_safe[:, None])               # (B_r, B_c)
    del S_ij                                               # dP_ij needs its place on chip
    dP_ij = dO_i @ V_j.T                                   # (B_r, B_c)
    dS_ij = P_ij * (dP_ij - D_i[:, None])                  # (B_r, B_c)
    return P_ij, dS_ij
