"""FlashAttention-2, backward: D first, once; then one kernel that writes dQ in every step, or two that write each gradient once."""

import torch

from flashlab.memory import kernel, load, store, tiles
from flashlab.tiles import band, largest_square_tile
from flashlab.validate import check_like, check_positive, check_qkv, check_scale

inf = float("inf")


def fa2_backward(Q, K, V, O, dO, L, *, dL=None, causal=False, window=None, scale=None, B_r=None, B_c=None):
    """The gradients of attention without S or P in HBM: key blocks outside, query blocks inside.

    Shapes:  Q (N_q, d), K (N_k, d), V (N_k, d_v), O and dO (N_q, d_v), L (N_q,) -> dQ, dK, dV, each like its tensor
             dL (N_q,), if the loss depends on L as well as on O, is N_q elements more to read
    Window:  as fa2_forward
    Tiles:   B_r queries by B_c keys at most; the default leaves room for the tiles of the backward
    Traffic: reads 2·N_q·d_v + N_k·(d + d_v) + T_c·N_q·(2·d + d_v + 2), the last term less if causal or with a window,
             writes N_q + N_k·(d + d_v) + (T_c + 1)·N_q·d, T_c likewise   [elements; exactly cost.fa2_backward]
    Error:   at most 3x that of naive_backward in the same dtype, both against float64
    Raises:  TypeError or ValueError that names the argument; SRAMOverflow under a Memory too small
    Source:  Dao 2023, arXiv:2307.08691, Algorithm 2, without two loads of its line 9: O_i, which nothing uses, and dQ_i,
             which line 15 loads again
    New:     against fa1_backward: L instead of l and m, which the paper calls its one tweak; D once instead of in every step
             (line 4), so O leaves the loop; causal tiles skipped, which is ours
    """
    seen, scale, B_r, B_c = _arguments(Q, K, V, O, dO, L, dL, causal, window, scale, B_r, B_c)
    D = _preprocess(O, dO, L, dL, B_r)                                          # (N_q,)
    dQ = torch.zeros(Q.shape, dtype=L.dtype, device=Q.device)                   # (N_q, d)  a sum over the key blocks
    dK = torch.empty(K.shape, dtype=K.dtype, device=K.device)                   # (N_k, d)
    dV = torch.empty(V.shape, dtype=V.dtype, device=V.device)                   # (N_k, d_v)
    with kernel("fa2_backward", Q=Q, K=K, V=V, dO=dO, L=L, D=D, dQ=dQ, dK=dK, dV=dV):
        for cols in tiles(K.shape[0], B_c):            # j, outer
            _key_block(Q, K, V, dO, L, D, dQ, dK, dV, cols, B_r, seen, scale)
    return dQ.to(Q.dtype), dK, dV


def fa2_backward_two_pass(Q, K, V, O, dO, L, *, dL=None, causal=False, window=None, scale=None, B_r=None, B_c=None):
    """The same gradients by two kernels: dK, dV with the key block fixed, then dQ with the query block fixed.

    Shapes, window, tiles, error, raises: as fa2_backward
    Traffic: reads 2·N_q·d_v + N_k·(d + d_v) + T_c·N_q·(d + d_v + 2) + N_q·(d + d_v + 2) + T_r·N_k·(d + d_v), less if
             causal or with a window, writes N_q + N_k·(d + d_v) + N_q·d   [elements; exactly cost.fa2_backward_two_pass]
    New:     against fa2_backward: no gradient is written twice, so no program waits for another's dQ and no order of
             additions is left to chance; for that S and dP are computed twice, 7 matrix products a tile instead of 5
    """
    seen, scale, B_r, B_c = _arguments(Q, K, V, O, dO, L, dL, causal, window, scale, B_r, B_c)
    D = _preprocess(O, dO, L, dL, B_r)                                          # (N_q,)
    dQ = torch.empty(Q.shape, dtype=Q.dtype, device=Q.device)                   # (N_q, d)
    dK = torch.empty(K.shape, dtype=K.dtype, device=K.device)                   # (N_k, d)
    dV = torch.empty(V.shape, dtype=V.dtype, device=V.device)                   # (N_k, d_v)
    with kernel("fa2_backward_dkdv", Q=Q, K=K, V=V, dO=dO, L=L, D=D, dK=dK, dV=dV):
        for cols in tiles(K.shape[0], B_c):            # j, outer: K_j is fixed
            _key_block(Q, K, V, dO, L, D, None, dK, dV, cols, B_r, seen, scale)
    with kernel("fa2_backward_dq", Q=Q, K=K, V=V, dO=dO, L=L, D=D, dQ=dQ):
        for rows in tiles(Q.shape[0], B_r):            # i, outer: Q_i is fixed
            _query_block(Q, K, V, dO, L, D, dQ, rows, B_c, seen, scale)
    return dQ, dK, dV


def _arguments(Q, K, V, O, dO, L, dL, causal, window, scale, B_r, B_c):
    check_qkv(Q, K, V)
    acc = torch.float64 if Q.dtype == torch.float64 else torch.float32    # sums in 16 bits would lose the answer
    check_like(O=(O, (len(Q), V.shape[1]), Q.dtype), dO=(dO, (len(Q), V.shape[1]), Q.dtype), L=(L, (len(Q),), acc))
    if dL is not None:
        check_like(dL=(dL, (len(Q),), acc))
    if B_r is None or B_c is None:
        B = largest_square_tile(Q.shape[-1], V.shape[-1], acc.itemsize, wide=9, square=5, multiple=8)
        B_r, B_c = B if B_r is None else B_r, B if B_c is None else B_c
    check_positive(B_r=B_r, B_c=B_c)
    return band(causal, window, len(Q), len(K)), check_scale(scale, Q.shape[-1]), B_r, B_c


def _preprocess(O, dO, L, dL, B_r):
    """D = rowsum(dO∘O), (N_q,), a kernel of its own: every key block needs it, and it depends on none.

    Where L has a gradient, D is less by it: S moves L by P, so dS = P∘(dP − D) + P∘dL = P∘(dP − (D − dL)).
    """
    D = torch.empty_like(L)
    with kernel("fa2_backward_preprocess", O=O, dO=dO, D=D, **({} if dL is None else {"dL": dL})):
        for rows in tiles(O.shape[0], B_r):
            D_i = (load(dO, rows).to(D.dtype) * load(O, rows)).sum(-1)          # (B_r,)
            store(D, rows, D_i if dL is None else D_i - load(dL, rows))
    return D


def _key_block(Q, K, V, dO, L, D, dQ, dK, dV, cols, B_r, seen, scale):
    """Key block j stays on chip, and so do the sums for its gradients. dQ is None where another kernel takes care of it."""
    K_j = load(K, cols).to(L.dtype)                                                 # (B_c, d)
    V_j = load(V, cols).to(L.dtype)                                                 # (B_c, d_v)
    dK_j = torch.zeros_like(K_j)                                                    # (B_c, d)
    dV_j = torch.zeros_like(V_j)                                                    # (B_c, d_v)
    for rows in tiles(Q.shape[0], B_r):                # i, inner
        if seen.misses(rows, cols):
            continue                                   # no query of this block sees a key of block j
        _step_j(Q, dO, L, D, dQ, K_j, V_j, dK_j, dV_j, rows, cols, seen, scale)
    store(dK, cols, dK_j)
    store(dV, cols, dV_j)


def _step_j(Q, dO, L, D, dQ, K_j, V_j, dK_j, dV_j, rows, cols, seen, scale):
    """Query block i adds its part to dK_j and dV_j, in place, and key block j its part to dQ_i, through HBM."""
    Q_i = load(Q, rows).to(L.dtype)                        # (B_r, d)
    dO_i = load(dO, rows).to(L.dtype)                      # (B_r, d_v)

    P_ij = _weights(Q_i, K_j, load(L, rows), rows, cols, seen, scale)               # (B_r, B_c)
    dP_ij = dO_i @ V_j.T                                   # (B_r, B_c)
    dV_j += P_ij.T @ dO_i
    dS_ij = P_ij * (dP_ij - load(D, rows)[:, None])        # (B_r, B_c)
    dK_j += scale * dS_ij.T @ Q_i
    if dQ is not None:
        dQ_i = load(dQ, rows)                              # (B_r, d)    the sum so far
        dQ_i += scale * dS_ij @ K_j
        store(dQ, rows, dQ_i)


def _query_block(Q, K, V, dO, L, D, dQ, rows, B_c, seen, scale):
    """Query block i stays on chip, and so does its dQ_i, while the keys it sees pass by."""
    Q_i = load(Q, rows).to(L.dtype)                                                 # (B_r, d)
    dO_i = load(dO, rows).to(L.dtype)                                               # (B_r, d_v)
    L_i, D_i = load(L, rows), load(D, rows)                                         # (B_r,)
    dQ_i = torch.zeros_like(Q_i)                                                    # (B_r, d)
    for cols in tiles(K.shape[0], B_c):                # j, inner
        if seen.misses(rows, cols):
            continue                                   # no query of block i sees a key of this block
        _step_i(Q_i, dO_i, L_i, D_i, dQ_i, K, V, rows, cols, seen, scale)
    store(dQ, rows, dQ_i)


def _step_i(Q_i, dO_i, L_i, D_i, dQ_i, K, V, rows, cols, seen, scale):
    """Key block j adds its part to dQ_i, in place."""
    K_j = load(K, cols).to(L_i.dtype)                      # (B_c, d)
    V_j = load(V, cols).to(L_i.dtype)                      # (B_c, d_v)
    P_ij = _weights(Q_i, K_j, L_i, rows, cols, seen, scale)                         # (B_r, B_c)
    dP_ij = dO_i @ V_j.T                                   # (B_r, B_c)
    dS_ij = P_ij * (dP_ij - D_i[:, None])                  # (B_r, B_c)
    dQ_i += scale * dS_ij @ K_j


def _weights(Q_i, K_j, L_i, rows, cols, seen, scale):
    """P_ij once more, already normalised: exp(S − L) = exp(S − m) / l."""
    L_safe = L_i.masked_fill(L_i == -inf, 0)               # (B_r,)      no visible key: -inf − -inf would be NaN
    S_ij = seen.mask(Q_i @ K_j.T * scale, rows, cols)      # (B_r, B_c)
    return torch.exp(S_ij - L_safe[:, None])
