"""FA2's backward pass as GPU kernels: D first, then dK and dV with the key block fixed, then dQ with the query block.

Read the two large kernels beside fa2_backward_two_pass in flashlab/rungs/fa2_backward.py. Two things are new. In the
dK/dV kernel scores stand with keys in rows, as S^T: then P^T and dS^T leave one matrix product in the registers where
the next one takes them, and nothing is transposed. And exponentials are powers of 2, for which a GPU has an
instruction: exp(S − L) is exp2(S · log2(e) − L_log2), with L_log2 = L · log2(e) prepared once per row.
"""

from functools import partial

import torch
import triton
import triton.language as tl

from flashlab.kernels.dropout import kept
from flashlab.kernels.launch import (
    LOG2_E,
    capability,
    checked_backward,
    little_shared_memory,
    only_wanted,
    shared_arguments,
)
from flashlab.kernels.plans import temporary


@triton.jit
def preprocess_kernel(
    O, dO, L, dL, D, L_log2,                           # pointers; all but dO are contiguous
    stride_dOb, stride_dOh, stride_dOn, stride_dOd,
    scale, H_q, N_q, d_v: tl.constexpr, B_r: tl.constexpr, B_dv: tl.constexpr, has_dL: tl.constexpr,
):
    """D = rowsum(dO∘O), less dL where L has a gradient, times scale; and L in base 2, +inf for rows that see no key.

    The scale belongs to dS, so that dS fits float16 where dQ and dK do; with D scaled here, dP·scale − D is one fused
    instruction, as dP − D would be.
    """
    T_r = tl.cdiv(N_q, B_r)
    i = tl.program_id(0) % T_r
    head = (tl.program_id(0) // T_r).to(tl.int64)
    dO += head // H_q * stride_dOb + head % H_q * stride_dOh
    rows = i * B_r + tl.arange(0, B_r)                                             # (B_r,)
    col_v = tl.arange(0, B_dv).to(tl.int64)
    ok = (rows[:, None] < N_q) & (col_v < d_v)                                     # (B_r, B_dv)
    O_i = tl.load(O + (head * N_q + rows)[:, None] * d_v + col_v, mask=ok, other=0.0)
    dO_i = tl.load(dO + rows[:, None].to(tl.int64) * stride_dOn + col_v * stride_dOd, mask=ok, other=0.0)

    at = head * N_q + rows                                                         # (B_r,)
    L_i = tl.load(L + at, mask=rows < N_q, other=-float("inf"))
    D_i = tl.sum(O_i.to(tl.float32) * dO_i.to(tl.float32), 1)                      # (B_r,)
    if has_dL:
        D_i -= tl.load(dL + at, mask=rows < N_q, other=0.0)
    tl.store(D + at, D_i * scale, mask=rows < N_q)
    L_i = tl.where(L_i == -float("inf"), float("inf"), L_i)                        # exp2(S - inf): P is 0 there
    tl.store(L_log2 + at, L_i * LOG2_E, mask=rows < N_q)


@triton.jit
def dkdv_kernel(
    Q, K, V, dO, L_log2, D, dK, dV, seed,              # pointers; L_log2, D, dK, dV are contiguous
    stride_Qb, stride_Qh, stride_Qn, stride_Qd, stride_dOb, stride_dOh, stride_dOn, stride_dOd,
    stride_Kb, stride_Kh, stride_Kn, stride_Kd, stride_Vb, stride_Vh, stride_Vn, stride_Vd,
    scale, H_q, H_kv, N_q, N_k, d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr, dropout_p: tl.constexpr,
    B_r: tl.constexpr, B_c: tl.constexpr, B_d: tl.constexpr, B_dv: tl.constexpr,
):
    T_c = tl.cdiv(N_k, B_c)                            # which key block? First ones first: most rows see them
    j, head_kv = tl.program_id(0) % T_c, (tl.program_id(0) // T_c).to(tl.int64)
    b, h_kv, group = head_kv // H_kv, head_kv % H_kv, H_q // H_kv
    keys = (j * B_c + tl.arange(0, B_c))[:, None]      # (B_c, 1)
    col, col_v = tl.arange(0, B_d).to(tl.int64), tl.arange(0, B_dv).to(tl.int64)
    K_at = K + b * stride_Kb + h_kv * stride_Kh + keys.to(tl.int64) * stride_Kn + col * stride_Kd
    K_j = tl.load(K_at, mask=(keys < N_k) & (col < d), other=0.0)                  # (B_c, B_d)
    V_at = V + b * stride_Vb + h_kv * stride_Vh + keys.to(tl.int64) * stride_Vn + col_v * stride_Vd
    V_j = tl.load(V_at, mask=(keys < N_k) & (col_v < d_v), other=0.0)              # (B_c, B_dv)
    dK_j, dV_j = tl.zeros((B_c, B_d), tl.float32), tl.zeros((B_c, B_dv), tl.float32)

    # Every query block that sees a key of this block, of every query head that shares these keys.
    first, end = tl.maximum(0, j * B_c + N_q - N_k) // B_r if causal else 0, tl.cdiv(N_q, B_r)
    count = tl.maximum(0, end - first)
    for step in range(0, group * count):
        each = tl.maximum(1, count)                    # after step // count the compiler assumes count > 0
        h, i = h_kv * group + step // each, first + step % each
        head, rows = b * H_q + h, i * B_r + tl.arange(0, B_r)                      # (B_r,)
        row_ok = rows < N_q                                                        # (B_r,)
        Q_at = Q + b * stride_Qb + h * stride_Qh + rows[:, None].to(tl.int64) * stride_Qn + col * stride_Qd
        Q_i = tl.load(Q_at, mask=row_ok[:, None] & (col < d), other=0.0)           # (B_r, B_d)
        dO_at = dO + b * stride_dOb + h * stride_dOh + rows[:, None].to(tl.int64) * stride_dOn + col_v * stride_dOd
        dO_i = tl.load(dO_at, mask=row_ok[:, None] & (col_v < d_v), other=0.0)     # (B_r, B_dv)
        L_i = tl.load(L_log2 + head * N_q + rows, mask=row_ok, other=0.0)          # (B_r,)
        if dropout_p > 0:                              # drawn here: fewer registers
            kept_T = kept(seed, head * N_q, i * B_r, j * B_c, N_k, dropout_p, B_r, B_c).T          # (B_c, B_r)
        S_T = tl.dot(K_j, Q_i.T, input_precision="ieee")                           # (B_c, B_r)
        P_T = tl.exp2(S_T * (scale * LOG2_E) - L_i)                                # (B_c, B_r)
        last = tl.where(row_ok, rows + (N_k - N_q) if causal else N_k - 1, -1)     # (B_r,) the last key that each sees
        P_T = tl.where(keys <= last, P_T, 0.0)         # rows past the end see none: a key of -inf times 0 is NaN
        dP_T = tl.dot(V_j, dO_i.T, input_precision="ieee")                         # (B_c, B_r)
        D_i = tl.load(D + head * N_q + rows, mask=row_ok, other=0.0)               # loaded here: fewer registers
        dS_T = P_T * (dP_T * scale - D_i)                                          # (B_c, B_r)
        if dropout_p > 0:
            dS_T = P_T * (tl.where(kept_T, dP_T * (scale / (1 - dropout_p)), 0.0) - D_i)
            P_T = tl.where(kept_T, P_T, 0.0)           # what met V in the forward; over 1 - p after the loop
        dV_j += tl.dot(P_T.to(dO_i.dtype), dO_i, input_precision="ieee")           # (B_c, B_dv)
        dK_j += tl.dot(dS_T.to(Q_i.dtype), Q_i, input_precision="ieee")            # (B_c, B_d)
    local, col, col_v = tl.arange(0, B_c)[:, None], tl.arange(0, B_d), tl.arange(0, B_dv)      # again: fewer registers
    dK, dV = dK + (head_kv * N_k + j * B_c) * d, dV + (head_kv * N_k + j * B_c) * d_v
    tl.store(dK + local * d + col, dK_j, mask=(local < N_k - j * B_c) & (col < d))
    tl.store(dV + local * d_v + col_v, dV_j * (1 / (1 - dropout_p)), mask=(local < N_k - j * B_c) & (col_v < d_v))


@triton.jit
def dq_kernel(
    Q, K, V, dO, L_log2, D, dQ, seed,                  # pointers; L_log2, D, dQ are contiguous
    stride_Qb, stride_Qh, stride_Qn, stride_Qd, stride_dOb, stride_dOh, stride_dOn, stride_dOd,
    stride_Kb, stride_Kh, stride_Kn, stride_Kd, stride_Vb, stride_Vh, stride_Vn, stride_Vd,
    scale, H_q, H_kv, N_q, N_k, d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr, dropout_p: tl.constexpr,
    B_r: tl.constexpr, B_c: tl.constexpr, B_d: tl.constexpr, B_dv: tl.constexpr,
):
    # Which query block of which head? As in the forward.
    T_r = tl.cdiv(N_q, B_r)
    i, head = T_r - 1 - tl.program_id(0) % T_r, (tl.program_id(0) // T_r).to(tl.int64)
    b, h, h_kv = head // H_q, head % H_q, head % H_q // (H_q // H_kv)
    K += b * stride_Kb + h_kv * stride_Kh
    V += b * stride_Vb + h_kv * stride_Vh
    rows = i * B_r + tl.arange(0, B_r)                 # (B_r,)
    col, col_v = tl.arange(0, B_d).to(tl.int64), tl.arange(0, B_dv).to(tl.int64)
    row_ok = rows[:, None] < N_q                       # (B_r, 1)
    Q_at = Q + b * stride_Qb + h * stride_Qh + rows[:, None].to(tl.int64) * stride_Qn + col * stride_Qd
    Q_i = tl.load(Q_at, mask=row_ok & (col < d), other=0.0)                        # (B_r, B_d)
    dO_at = dO + b * stride_dOb + h * stride_dOh + rows[:, None].to(tl.int64) * stride_dOn + col_v * stride_dOd
    dO_i = tl.load(dO_at, mask=row_ok & (col_v < d_v), other=0.0)                  # (B_r, B_dv)
    L_i = tl.load(L_log2 + head * N_q + rows, mask=rows < N_q, other=float("inf")) # (B_r,)
    D_i = tl.load(D + head * N_q + rows, mask=rows < N_q, other=0.0)               # (B_r,)
    dQ_i = tl.zeros((B_r, B_d), tl.float32)                                # (B_r, B_d)

    end = tl.minimum(N_q, (i + 1) * B_r) + N_k - N_q if causal else N_k            # keys from here on are hidden
    for j in range(0, tl.cdiv(end, B_c)):
        keys = j * B_c + tl.arange(0, B_c)             # (B_c,)
        key_ok = keys[:, None] < N_k                   # (B_c, 1)
        K_at = K + keys[:, None].to(tl.int64) * stride_Kn + col * stride_Kd
        K_j = tl.load(K_at, mask=key_ok & (col < d), other=0.0)                    # (B_c, B_d)
        V_at = V + keys[:, None].to(tl.int64) * stride_Vn + col_v * stride_Vd
        V_j = tl.load(V_at, mask=key_ok & (col_v < d_v), other=0.0)                # (B_c, B_dv)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee")                          # (B_r, B_c)
        P_ij = tl.exp2(S_ij * (scale * LOG2_E) - L_i[:, None])                     # (B_r, B_c)
        visible = keys <= rows[:, None] + (N_k - N_q) if causal else keys < N_k    # (B_r or 1, B_c)
        P_ij = tl.where(visible, P_ij, 0.0)                                        # (B_r, B_c)
        dP_ij = tl.dot(dO_i, V_j.T, input_precision="ieee")                        # (B_r, B_c)
        if dropout_p > 0:
            stays = kept(seed, head * N_q, i * B_r, j * B_c, N_k, dropout_p, B_r, B_c)             # (B_r, B_c)
            dP_ij = tl.where(stays, dP_ij / (1 - dropout_p), 0.0)                  # (B_r, B_c)
        dS_ij = P_ij * (dP_ij * scale - D_i[:, None])                              # (B_r, B_c)
        dQ_i += tl.dot(dS_ij.to(K_j.dtype), K_j, input_precision="ieee")           # (B_r, B_d)

    tl.store(dQ + (head * N_q + rows)[:, None] * d + col, dQ_i, mask=row_ok & (col < d))


def fa2_triton_backward(Q, K, V, O, dO, L, *, dL=None, causal=False, scale=None, dropout_p=0.0, seed=None,
                        deterministic=False, B_r=None, B_c=None):
    """The gradients of attention for every batch and head, in three launches.

    Shapes:  Q, K, V as fa2_triton_forward, O, dO (B, H_q, N_q, d_v), L (B, H_q, N_q), and dL like L if L has a gradient
             -> dQ, dK, dV, each like its tensor, contiguous; dK and dV are sums over the query heads that share a head
    Dropout: dropout_p and seed, a 0-dim int64 tensor, are those of the forward
    Deterministic: always, since no two programs write the same element: same inputs, same bits
    Tiles:   B_r x B_c for both large kernels, powers of two >= 16; by default each has its own, see `best_tiles`
    Error:   at most 3x that of naive_backward in the same dtype, both against float64
    Source:  Dao 2023, arXiv:2307.08691, Algorithm 2, its loop taken apart
    New:     against fa2_backward_two_pass: the outer loops are the launch grids
    """
    return checked_backward(launch, Q, K, V, O, dO, L, dL, causal=causal, scale=scale, dropout_p=dropout_p, seed=seed,
                            deterministic=deterministic, B_r=B_r, B_c=B_c)


def three_launches(kernels, Q, K, V, O, dO, L, dL, dQ, dK, dV, *, B_r=None, B_c=None, tiles=None, **options):
    """The launches in order, each (kernel, grid, arguments): `preprocess`, one for dK and dV, one for dQ. None runs.

    kernels, tiles: of the last two; tiles by default those of `tiles_by_hand`
    """
    (B, H_q, N_q, _), (_, H_kv, N_k, _) = Q.shape, V.shape
    for_dkdv, for_dq = tiles or tiles_by_hand(Q, V, options, B_r, B_c)
    shared = shared_arguments(Q, K, V, options, dO=dO)
    first, rows = preprocess(shared, O, L, dL)
    shared |= rows
    return (first,
            (kernels[0], (B * H_kv * triton.cdiv(N_k, for_dkdv["B_c"]),), shared | {"dK": dK, "dV": dV} | for_dkdv),
            (kernels[1], (B * H_q * triton.cdiv(N_q, for_dq["B_r"]),), shared | {"dQ": dQ} | for_dq))


launch = partial(three_launches, (dkdv_kernel, dq_kernel), dropout_p=0.0, seed=None)


def preprocess(shared, O, L, dL):
    """The launch that every backward pass begins with, and the tensors that it makes: {"L_log2": ..., "D": ...}."""
    rows = {name: temporary(torch.empty, *L.shape, dtype=L.dtype, device=L.device) for name in ("L_log2", "D")}
    arguments = shared | rows | {"O": O, "L": L, "dL": dL, "has_dL": dL is not None, "B_r": 32, "num_warps": 4}
    grid = (L.shape[0] * L.shape[1] * triton.cdiv(L.shape[2], 32),)
    return (preprocess_kernel, grid, only_wanted(preprocess_kernel, arguments)), rows


def tiles_by_hand(Q, V, options, B_r=None, B_c=None):
    """Tile sizes, warps and stages of each large kernel, by name: those of `best_tiles` unless B_r or B_c is set."""
    d, dropout = max(Q.shape[-1], V.shape[-1]), options.get("dropout_p", 0.0) > 0
    small = little_shared_memory(Q)
    best = best_tiles(d, Q.dtype, dropout, small, small or (capability(Q) or (9, 0)) < (9, 0))
    return [{"B_r": B_r or best_B_r, "B_c": B_c or best_B_c, "num_warps": num_warps, "num_stages": num_stages}
            for best_B_r, best_B_c, num_warps, num_stages in best]


def best_tiles(d, dtype, dropout=False, small=False, by_threads=False):
    """(B_r, B_c, num_warps, num_stages) for dkdv_kernel and for dq_kernel: in 16 bits no registers spill on an H100.

    dropout: the mask of a tile takes registers, too. small: the GPU has 99 KiB of shared memory, as a 4090 has, or less
    by_threads: its tensor cores read every tile from registers, as before Hopper
    """
    if dtype == torch.float32:
        if d <= 128:
            return (32, 32, 8, 2), (32, 32, 8, 2)
        return (16, 16 if small else 32, 8, 2), (32, 16, 8, 2)
    if dropout and d <= 64:
        return (32, 128, 8, 1) if by_threads else (64, 64, 4, 1), (64, 64, 4, 2)
    if dropout and d <= 128 and by_threads:
        return (64, 64, 8, 1), (128, 64, 8, 2)
    if d <= 128:
        num_stages = 3 if d <= 64 else 2
        return (64, 128, 8, num_stages), (128, 64, 8, num_stages)
    return (16 if dropout or small else 32, 64, 8, 2), (32 if small else 64, 32, 8, 2)
