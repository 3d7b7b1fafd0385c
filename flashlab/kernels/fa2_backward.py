"""FA2's backward pass as GPU kernels: D first, then dK and dV with the key block fixed, then dQ with the query block fixed.

Read the two large kernels beside fa2_backward_two_pass in flashlab/rungs/fa2_backward.py. Two things are new. In the dK/dV kernel
scores stand with keys in rows, as S^T: then P^T and dS^T leave one matrix product in the registers where the next one takes
them, and nothing is transposed. And exponentials are powers of 2, for which a GPU has an instruction: exp(S − L) is
exp2(S · log2(e) − L_log2), with L_log2 = L · log2(e) prepared once per row.
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.dropout import kept
from flashlab.kernels.groups import head_and_tile
from flashlab.kernels.launch import backward, check_backward_call, little_shared_memory, padded, shared_arguments
from flashlab.kernels.plans import temporary
from flashlab.operator.sequences import (
    ORDINARY,
    key_blocks_seen,
    output_rows,
    query_blocks_that_see,
    rows_of_part,
    sequence_at,
    slots,
    visible,
)

LOG2_E = tl.constexpr(1.4426950408889634)              # exp(x) = exp2(x · log2(e))


@triton.jit
def preprocess_kernel(
    O, dO, L, dL, D, L_log2,                           # pointers; all but dO are contiguous
    stride_dOb, stride_dOh, stride_dOn, stride_dOd,
    scale, H_q, N_q, N_out, d_v: tl.constexpr, B_r: tl.constexpr, B_dv: tl.constexpr, has_dL: tl.constexpr,
    batch, cu_seqlens, block,
):
    """D = rowsum(dO∘O), less dL where L has a gradient too, times scale; and L in base 2.

    L is +inf for a row that sees no key or is none of N_q. The scale belongs to dS, so that dS fits float16 where dQ and dK do;
    with D scaled here, dP·scale − D is one fused instruction, as dP − D would be. cu_seqlens: results go where the slots of packed
    sequences are, for blocks of `block` rows.
    """
    T_r = tl.cdiv(N_out, B_r)
    i = tl.program_id(0) % T_r
    head = (tl.program_id(0) // T_r).to(tl.int64)
    dO += head // H_q * stride_dOb + head % H_q * stride_dOh
    rows, end = i * B_r + tl.arange(0, B_r), N_q                                   # (B_r,)
    places = rows                                                                  # (B_r,)       where their results go
    if cu_seqlens is not None:
        first, end = rows_of_part(i * B_r, cu_seqlens, batch, N_q, block)
        rows = first + tl.arange(0, B_r)                                           # (B_r,)
    col_v = tl.arange(0, B_dv).to(tl.int64)
    ok = (rows[:, None] < end) & (col_v < d_v)                                     # (B_r, B_dv)
    O_i = tl.load(O + output_rows(head, rows, H_q, N_q, batch)[:, None] * d_v + col_v, mask=ok, other=0.0)
    dO_i = tl.load(dO + rows[:, None].to(tl.int64) * stride_dOn + col_v * stride_dOd, mask=ok, other=0.0)

    at = head * N_q + rows                                                         # (B_r,)
    L_i = tl.load(L + at, mask=rows < end, other=-float("inf"))
    D_i = tl.sum(O_i.to(L_i.dtype) * dO_i.to(L_i.dtype), 1)                        # (B_r,)
    if has_dL:
        D_i -= tl.load(dL + at, mask=rows < end, other=0.0)
    out = head * N_out + places                                                    # (B_r,)
    tl.store(D + out, D_i * scale, mask=places < N_out)
    L_i = tl.where(L_i == -float("inf"), float("inf"), L_i)                        # exp2(S - inf) = 0: P is 0 in that row
    tl.store(L_log2 + out, L_i * LOG2_E, mask=places < N_out)


@triton.jit
def dkdv_kernel(
    Q, K, V, dO, L_log2, D, dK, dV, seed,              # pointers; L_log2, D, dK, dV are contiguous
    stride_Qb, stride_Qh, stride_Qn, stride_Qd, stride_Kb, stride_Kh, stride_Kn, stride_Kd,
    stride_Vb, stride_Vh, stride_Vn, stride_Vd, stride_dOb, stride_dOh, stride_dOn, stride_dOd,
    scale, H_q, H_kv, N_q, N_k, left, right, cu_seqlens_q, cu_seqlens_k, batch,
    d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr, dropout_p: tl.constexpr,
    B_r: tl.constexpr, B_c: tl.constexpr, B_d: tl.constexpr, B_dv: tl.constexpr,
):
    # Which key block of which head? First blocks first: causal ones are seen by most queries.
    T_c = tl.cdiv(N_k, B_c) if batch is None else tl.num_programs(0) // H_kv
    j = tl.program_id(0) % T_c
    head_kv = (tl.program_id(0) // T_c).to(tl.int64)
    b, h_kv = head_kv // H_kv, head_kv % H_kv
    all_q, all_k = N_q, N_k                            # a packed sequence begins at start_q and start_k; its N_q and N_k are all
    j, start_k, N_k, start_q, N_q = sequence_at(j, cu_seqlens_k, cu_seqlens_q, batch, N_k, N_q, B_c)
    keys = j * B_c + tl.arange(0, B_c)                 # (B_c,)
    col, col_v = tl.arange(0, B_d).to(tl.int64), tl.arange(0, B_dv).to(tl.int64)
    key_ok = keys[:, None] < N_k                       # (B_c, 1)
    K_at = K + b * stride_Kb + h_kv * stride_Kh + (start_k + keys[:, None]).to(tl.int64) * stride_Kn + col * stride_Kd
    K_j = tl.load(K_at, mask=key_ok & (col < d), other=0.0)                        # (B_c, B_d)
    V_at = V + b * stride_Vb + h_kv * stride_Vh + (start_k + keys[:, None]).to(tl.int64) * stride_Vn + col_v * stride_Vd
    V_j = tl.load(V_at, mask=key_ok & (col_v < d_v), other=0.0)                    # (B_c, B_dv)
    dK_j = tl.zeros((B_c, B_d), D.dtype.element_ty)                                # (B_c, B_d)
    dV_j = tl.zeros((B_c, B_dv), D.dtype.element_ty)                               # (B_c, B_dv)

    # Every query block that sees a key of this block, of every query head that shares these keys, in one loop.
    group = H_q // H_kv
    first, count = query_blocks_that_see(j, B_r, B_c, N_q, N_k, causal, left, right)
    for step in range(0, group * count):
        h, i = head_and_tile(step, count, h_kv * group, first)
        head = b * H_q + h
        rows = i * B_r + tl.arange(0, B_r)             # (B_r,)
        row_ok = rows[:, None] < N_q                   # (B_r, 1)
        Q_at = Q + b * stride_Qb + h * stride_Qh + (start_q + rows[:, None]).to(tl.int64) * stride_Qn + col * stride_Qd
        Q_i = tl.load(Q_at, mask=row_ok & (col < d), other=0.0)                    # (B_r, B_d)
        dO_at = dO + b * stride_dOb + h * stride_dOh + (start_q + rows[:, None]).to(tl.int64) * stride_dOn + col_v * stride_dOd
        dO_i = tl.load(dO_at, mask=row_ok & (col_v < d_v), other=0.0)              # (B_r, B_dv)
        L_i = tl.load(L_log2 + (head * all_q + start_q) + rows, mask=rows < N_q, other=float("inf"))   # (B_r,)  P = 0 past the end

        S_T = tl.dot(K_j, Q_i.T, input_precision="ieee")                           # (B_c, B_r)
        P_T = tl.exp2(S_T * (scale * LOG2_E) - L_i)                                # (B_c, B_r)
        if causal or left is not None:
            P_T = tl.where(visible(rows, keys[:, None], N_q, N_k, causal, left, right), P_T, 0.0)  # (B_c, B_r)
        dP_T = tl.dot(V_j, dO_i.T, input_precision="ieee")                         # (B_c, B_r)
        D_i = tl.load(D + (head * all_q + start_q) + rows, mask=rows < N_q, other=0.0)     # (B_r,)   here: earlier costs registers
        dS_T = P_T * (dP_T * scale - D_i)                                          # (B_c, B_r)
        if dropout_p > 0:
            kept_T = kept(seed, head, start_q + rows, keys[:, None], all_q, all_k, dropout_p)     # (B_c, B_r)
            dS_T = P_T * (tl.where(kept_T, dP_T * (scale / (1 - dropout_p)), 0.0) - D_i)
            P_T = tl.where(kept_T, P_T, 0.0)           # what met V in the forward; over 1 - p after the loop
        dV_j += tl.dot(P_T.to(dO_i.dtype), dO_i, input_precision="ieee")           # (B_c, B_dv)
        dK_j += tl.dot(dS_T.to(Q_i.dtype), Q_i, input_precision="ieee")            # (B_c, B_d)

    # Addresses from scratch: those of K_j would take up registers throughout the loop.
    local, apart = tl.arange(0, B_c)[:, None], 1 if batch is None else H_kv        # (B_c, 1), and from row to row
    first = output_rows(head_kv, start_k + j * B_c, H_kv, all_k, batch)
    dK, dV = dK + first * d, dV + first * d_v
    col, col_v = tl.arange(0, B_d), tl.arange(0, B_dv)
    tl.store(dK + local * apart * d + col, dK_j, mask=(local < N_k - j * B_c) & (col < d))
    tl.store(dV + local * apart * d_v + col_v, dV_j * (1 / (1 - dropout_p)), mask=(local < N_k - j * B_c) & (col_v < d_v))


@triton.jit
def dq_kernel(
    Q, K, V, dO, L_log2, D, dQ, seed,                  # pointers; L_log2, D, dQ are contiguous
    stride_Qb, stride_Qh, stride_Qn, stride_Qd, stride_Kb, stride_Kh, stride_Kn, stride_Kd,
    stride_Vb, stride_Vh, stride_Vn, stride_Vd, stride_dOb, stride_dOh, stride_dOn, stride_dOd,
    scale, H_q, H_kv, N_q, N_k, left, right, cu_seqlens_q, cu_seqlens_k, batch,
    d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr, dropout_p: tl.constexpr,
    B_r: tl.constexpr, B_c: tl.constexpr, B_d: tl.constexpr, B_dv: tl.constexpr,
):
    # Which query block of which head? As in the forward.
    T_r = tl.cdiv(N_q, B_r) if batch is None else tl.num_programs(0) // H_q
    i = T_r - 1 - tl.program_id(0) % T_r
    head = (tl.program_id(0) // T_r).to(tl.int64)
    b, h = head // H_q, head % H_q
    h_kv = h // (H_q // H_kv)
    all_q, all_k = N_q, N_k
    i, start_q, N_q, start_k, N_k = sequence_at(i, cu_seqlens_q, cu_seqlens_k, batch, N_q, N_k, B_r)
    K += b * stride_Kb + h_kv * stride_Kh + start_k * stride_Kn
    V += b * stride_Vb + h_kv * stride_Vh + start_k * stride_Vn
    rows = i * B_r + tl.arange(0, B_r)                 # (B_r,)
    col, col_v = tl.arange(0, B_d).to(tl.int64), tl.arange(0, B_dv).to(tl.int64)
    row_ok = rows[:, None] < N_q                       # (B_r, 1)
    Q_at = Q + b * stride_Qb + h * stride_Qh + (start_q + rows[:, None]).to(tl.int64) * stride_Qn + col * stride_Qd
    Q_i = tl.load(Q_at, mask=row_ok & (col < d), other=0.0)                        # (B_r, B_d)
    dO_at = dO + b * stride_dOb + h * stride_dOh + (start_q + rows[:, None]).to(tl.int64) * stride_dOn + col_v * stride_dOd
    dO_i = tl.load(dO_at, mask=row_ok & (col_v < d_v), other=0.0)                  # (B_r, B_dv)
    L_i = tl.load(L_log2 + (head * all_q + start_q) + rows, mask=rows < N_q, other=float("inf"))       # (B_r,)
    D_i = tl.load(D + (head * all_q + start_q) + rows, mask=rows < N_q, other=0.0)                     # (B_r,)
    dQ_i = tl.zeros((B_r, B_d), D.dtype.element_ty)                                # (B_r, B_d)

    first, end = key_blocks_seen(i, B_r, B_c, N_q, N_k, causal, left, right)
    for j in range(first, end):
        keys = j * B_c + tl.arange(0, B_c)             # (B_c,)
        key_ok = keys[:, None] < N_k                   # (B_c, 1)
        K_at = K + keys[:, None].to(tl.int64) * stride_Kn + col * stride_Kd
        K_j = tl.load(K_at, mask=key_ok & (col < d), other=0.0)                    # (B_c, B_d)
        V_at = V + keys[:, None].to(tl.int64) * stride_Vn + col_v * stride_Vd
        V_j = tl.load(V_at, mask=key_ok & (col_v < d_v), other=0.0)                # (B_c, B_dv)

        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee")                          # (B_r, B_c)
        P_ij = tl.exp2(S_ij * (scale * LOG2_E) - L_i[:, None])                     # (B_r, B_c)
        seen = visible(rows[:, None], keys, N_q, N_k, causal, left, right)         # (B_r or 1, B_c)
        P_ij = tl.where(seen, P_ij, 0.0)                                           # (B_r, B_c)
        dP_ij = tl.dot(dO_i, V_j.T, input_precision="ieee")                        # (B_r, B_c)
        if dropout_p > 0:
            stays = kept(seed, head, start_q + rows[:, None], keys, all_q, all_k, dropout_p)    # (B_r, B_c)
            dP_ij = tl.where(stays, dP_ij / (1 - dropout_p), 0.0)                  # (B_r, B_c)
        dS_ij = P_ij * (dP_ij * scale - D_i[:, None])                              # (B_r, B_c)
        dQ_i += tl.dot(dS_ij.to(K_j.dtype), K_j, input_precision="ieee")           # (B_r, B_d)

    dQ_at = dQ + output_rows(head, start_q + rows, H_q, all_q, batch)[:, None] * d + col       # (B_r, B_d)
    tl.store(dQ_at, dQ_i, mask=row_ok & (col < d))


def fa2_triton_backward(
    Q, K, V, O, dO, L, *, dL=None, causal=False, window=None, cu_seqlens_q=None, cu_seqlens_k=None, scale=None, dropout_p=0.0,
    seed=None, deterministic=False, B_r=None, B_c=None,
):
    """The gradients of attention for every batch and head, in three launches.

    Shapes:  Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d_v), O and dO (B, H_q, N_q, d_v), L (B, H_q, N_q)
             -> dQ, dK, dV, each like its tensor, contiguous; dK and dV are sums over the query heads that share the keys
             dL, like L, where L has a gradient of its own; float16, bfloat16, float32, and float64 when interpreted
    Window, packed: as fa2_triton_forward; packed gradients have the strides of contiguous (N_q, H_q, d), (N_k, H_kv, d or d_v)
    Dropout: dropout_p and seed, a 0-dim int64 tensor, are those of the forward
    Deterministic: same inputs, same bits, whatever is asked for: no two programs write the same element
    Tiles:   B_r x B_c for both large kernels, powers of two >= 16; by default each has its own, see `best_tiles`
    Error:   at most 3x that of naive_backward in the same dtype, both against float64
    Raises:  TypeError or ValueError before anything is launched
    Source:  Dao 2023, arXiv:2307.08691, Algorithm 2, its loop taken apart
    New:     against fa2_backward_two_pass: the outer loops are the launch grids
    """
    options = check_backward_call(Q, K, V, O, dO, L, dL, B_r=B_r, B_c=B_c, causal=causal, window=window,
                                  cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, scale=scale, dropout_p=dropout_p,
                                  seed=seed, deterministic=deterministic)
    return backward(launch, Q, K, V, O, dO, L, dL, B_r=B_r, B_c=B_c, **options)


def launch(Q, K, V, O, dO, L, dL, dQ, dK, dV, *, B_r=None, B_c=None, **options):
    """The three launches in order, each (kernel, grid, arguments); nothing is checked and nothing runs."""
    (B, H_q, N_q, _), (_, H_kv, N_k, _) = Q.shape, V.shape
    options = ORDINARY | options
    batch = options["batch"]
    first, rows = preprocess(O, dO, L, dL, options["scale"], batch=batch)
    for_dkdv, for_dq = tiles_by_hand(best_tiles, Q, V, options, B_r, B_c)
    shared = shared_arguments(Q, K, V, options, dO=dO) | rows
    return (first,
            (dkdv_kernel, (B * H_kv * slots(N_k, for_dkdv["B_c"], batch),), shared | {"dK": dK, "dV": dV} | for_dkdv),
            (dq_kernel, (B * H_q * slots(N_q, for_dq["B_r"], batch),), shared | {"dQ": dQ} | for_dq))


def preprocess(O, dO, L, dL, scale, N_out=None, batch=None, cu_seqlens=None, block=None):
    """The launch that every backward pass begins with, and what it makes, by name: L_log2 and D, N_out rows of each head.

    cu_seqlens: to make them in slots for blocks of so many rows, see sequences.py
    """
    (B, H_q, N_q, d_v), B_r = O.shape, 32
    N_out = N_out or N_q
    rows = {name: temporary(torch.empty, B, H_q, N_out, dtype=L.dtype, device=L.device) for name in ("L_log2", "D")}
    arguments = rows | {"O": O, "dO": dO, "L": L, "dL": dL, "has_dL": dL is not None, "scale": scale, "batch": batch}
    arguments |= {"cu_seqlens": cu_seqlens, "block": None if cu_seqlens is None else block}
    arguments |= {f"stride_dO{axis}": step for axis, step in zip("bhnd", dO.stride(), strict=True)}
    arguments |= {"H_q": H_q, "N_q": N_q, "N_out": N_out, "d_v": d_v, "B_dv": padded(d_v), "B_r": B_r, "num_warps": 4}
    return (preprocess_kernel, (B * H_q * triton.cdiv(N_out, B_r),), arguments), rows


def tiles_by_hand(best_tiles, Q, V, options, B_r=None, B_c=None):
    """Tile sizes, warps and stages of each large kernel, as a launch takes them: `best_tiles` where the caller does not say."""
    best = best_tiles(max(Q.shape[-1], V.shape[-1]), Q.dtype, options.get("dropout_p", 0.0) > 0, little_shared_memory(Q))
    return [{"B_r": B_r or best_B_r, "B_c": B_c or best_B_c, "num_warps": num_warps, "num_stages": num_stages}
            for best_B_r, best_B_c, num_warps, num_stages in best]


def best_tiles(d, dtype, dropout=False, small=False):
    """(B_r, B_c, num_warps, num_stages) for dkdv_kernel and for dq_kernel: in 16 bits no registers spill on an H100.

    dropout: the mask of a tile takes registers, too. small: the GPU has 99 KiB of shared memory, as a 4090 has, or less
    """
    if dtype in (torch.float32, torch.float64):
        if d <= 128:
            return (32, 32, 8, 2), (32, 32, 8, 2)
        return (16, 16 if small else 32, 8, 2), (32, 16, 8, 2)
    if d <= 64:
        return (32 if dropout else 64, 128, 8, 3), (128, 64, 8, 3)
    if d <= 128:
        return (32 if dropout else 64, 128, 8, 2), (128, 64, 8, 2)
    return (16 if dropout or small else 32, 64, 8, 2), (32 if small else 64, 32, 8, 2)
