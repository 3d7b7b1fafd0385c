"""FA2's backward pass with each loop split in two: tiles of visible scores, without masks, and the rest, with masks.

A mask costs a comparison and a selection for each score, and only the diagonal and a short last tile need one. With
keys fixed, the tiles on the diagonal come first and the short one last: the whole ones lie between.
"""

from functools import partial

import triton
import triton.language as tl

from flashlab.kernels.fa2_backward import three_launches, tiles_by_hand
from flashlab.kernels.launch import LOG2_E, checked_backward
from flashlab.kernels.tuning import choose


@triton.jit
def split_dkdv_kernel(
    Q, K, V, dO, L_log2, D, dK, dV,                    # pointers; L_log2, D, dK, dV are contiguous
    stride_Qb, stride_Qh, stride_Qn, stride_Qd, stride_dOb, stride_dOh, stride_dOn, stride_dOd,
    stride_Kb, stride_Kh, stride_Kn, stride_Kd, stride_Vb, stride_Vh, stride_Vn, stride_Vd,
    scale, H_q, H_kv, N_q, N_k, d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr,
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
    whole_from = tl.minimum(end, tl.cdiv(tl.maximum(0, (j + 1) * B_c - 1 + N_q - N_k), B_r)) if causal else 0
    whole = tl.maximum(0, N_q // B_r - whole_from) if (j + 1) * B_c <= N_k else 0  # tiles of visible scores only
    for masked in tl.static_range(2):                  # unrolled: two loops, of which only the second has masks
        count = end - first - whole if masked else whole
        for step in range(0, group * count):
            each = tl.maximum(1, count)                # after step // count the compiler assumes count > 0
            h, i = h_kv * group + step // each, (first if masked else whole_from) + step % each
            i += tl.where(i >= whole_from, whole, 0) if masked else 0
            head, rows = b * H_q + h, i * B_r + tl.arange(0, B_r)                  # (B_r,)
            row_ok = rows < N_q if masked else None                                # (B_r,)
            Q_at = Q + b * stride_Qb + h * stride_Qh + rows[:, None].to(tl.int64) * stride_Qn + col * stride_Qd
            Q_i = tl.load(Q_at, mask=row_ok[:, None] & (col < d) if masked else (col < d)[None, :], other=0.0)
            dO_at = dO + b * stride_dOb + h * stride_dOh + rows[:, None].to(tl.int64) * stride_dOn + col_v * stride_dOd
            dO_i = tl.load(dO_at, mask=row_ok[:, None] & (col_v < d_v) if masked else (col_v < d_v)[None, :], other=0.0)
            L_i = tl.load(L_log2 + head * N_q + rows, mask=row_ok, other=0.0 if masked else None)
            S_T = tl.dot(K_j, Q_i.T, input_precision="ieee")                       # (B_c, B_r)
            P_T = tl.exp2(S_T * (scale * LOG2_E) - L_i)                            # (B_c, B_r)
            if masked:
                visible = row_ok & (keys <= rows + (N_k - N_q)) if causal else row_ok
                P_T = tl.where(visible, P_T, 0.0)                                  # (B_c, B_r)
            dP_T = tl.dot(V_j, dO_i.T, input_precision="ieee")                     # (B_c, B_r)
            D_i = tl.load(D + head * N_q + rows, mask=row_ok, other=0.0 if masked else None)    # here: fewer registers
            dS_T = P_T * (dP_T * scale - D_i)                                      # (B_c, B_r)
            dV_j += tl.dot(P_T.to(dO_i.dtype), dO_i, input_precision="ieee")       # (B_c, B_dv)
            dK_j += tl.dot(dS_T.to(Q_i.dtype), Q_i, input_precision="ieee")        # (B_c, B_d)
    local, col, col_v = tl.arange(0, B_c)[:, None], tl.arange(0, B_d), tl.arange(0, B_dv)      # again: fewer registers
    dK, dV = dK + (head_kv * N_k + j * B_c) * d, dV + (head_kv * N_k + j * B_c) * d_v
    tl.store(dK + local * d + col, dK_j, mask=(local < N_k - j * B_c) & (col < d))
    tl.store(dV + local * d_v + col_v, dV_j, mask=(local < N_k - j * B_c) & (col_v < d_v))


@triton.jit
def split_dq_kernel(
    Q, K, V, dO, L_log2, D, dQ,                        # pointers; L_log2, D, dQ are contiguous
    stride_Qb, stride_Qh, stride_Qn, stride_Qd, stride_dOb, stride_dOh, stride_dOn, stride_dOd,
    stride_Kb, stride_Kh, stride_Kn, stride_Kd, stride_Vb, stride_Vh, stride_Vn, stride_Vd,
    scale, H_q, H_kv, N_q, N_k, d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr,
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
    whole = (tl.maximum(0, i * B_r + N_k - N_q + 1) if causal else N_k) // B_c     # tiles that the first row sees whole
    for masked in tl.static_range(2):                  # unrolled: two loops, of which only the second has masks
        for j in range(whole if masked else 0, tl.cdiv(end, B_c) if masked else whole):
            keys = j * B_c + tl.arange(0, B_c)         # (B_c,)
            key_ok = keys[:, None] < N_k               # (B_c, 1)
            K_at = K + keys[:, None].to(tl.int64) * stride_Kn + col * stride_Kd
            K_j = tl.load(K_at, mask=key_ok & (col < d) if masked else (col < d)[None, :], other=0.0)
            V_at = V + keys[:, None].to(tl.int64) * stride_Vn + col_v * stride_Vd
            V_j = tl.load(V_at, mask=key_ok & (col_v < d_v) if masked else (col_v < d_v)[None, :], other=0.0)
            S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee")                      # (B_r, B_c)
            P_ij = tl.exp2(S_ij * (scale * LOG2_E) - L_i[:, None])                 # (B_r, B_c)
            if masked:
                visible = keys <= rows[:, None] + (N_k - N_q) if causal else keys < N_k
                P_ij = tl.where(visible, P_ij, 0.0)                                # (B_r, B_c)
            dP_ij = tl.dot(dO_i, V_j.T, input_precision="ieee")                    # (B_r, B_c)
            dS_ij = P_ij * (dP_ij * scale - D_i[:, None])                          # (B_r, B_c)
            dQ_i += tl.dot(dS_ij.to(K_j.dtype), K_j, input_precision="ieee")       # (B_r, B_d)
    tl.store(dQ + (head * N_q + rows)[:, None] * d + col, dQ_i, mask=row_ok & (col < d))


KERNELS = {"keys": split_dkdv_kernel, "queries": split_dq_kernel}     # by what their programs keep on chip
launch = partial(three_launches, tuple(KERNELS.values()))


def fa2_split_backward(Q, K, V, O, dO, L, *, dL=None, causal=False, scale=None, deterministic=False, B_r=None,
                       B_c=None):
    """As `fa2_triton_backward`, without dropout. New: tiles with all scores visible have loops without masks."""
    return checked_backward(launch, Q, K, V, O, dO, L, dL, causal=causal, scale=scale, deterministic=deterministic,
                            B_r=B_r, B_c=B_c)


def fa2_tuned_backward(Q, K, V, O, dO, L, *, dL=None, causal=False, scale=None, deterministic=False, B_r=None,
                       B_c=None):
    """As `fa2_split_backward`. New: tile sizes, warps and stages of each kernel from a search, see tuning.py."""
    return checked_backward(launch_tuned, Q, K, V, O, dO, L, dL, causal=causal, scale=scale,
                            deterministic=deterministic, B_r=B_r, B_c=B_c)


def launch_tuned(Q, K, V, *tensors, B_r=None, B_c=None, tiles=None, **options):
    """`launch` with the tiles of `tuning.choose`. tiles: by KERNELS' names, those to take instead"""
    chosen = [choose(KERNELS[name], Q, K, V, options, B_r, B_c, (tiles or {}).get(name), by_hand) for name, by_hand
              in zip(KERNELS, tiles_by_hand(Q, V, options, B_r, B_c), strict=True)]
    return launch(Q, K, V, *tensors, tiles=chosen, **options)
