"""The gradients of attention with a window, packed sequences and dropout, on any GPU: what the ladder leaves out.

The kernels are those of kernels/fa2_backward.py; sequences.py finds the blocks that see one another and the rows of a
sequence.
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.dropout import kept
from flashlab.kernels.fa2_backward import tiles_by_hand
from flashlab.kernels.launch import LOG2_E, checked_backward, padded, shared_arguments
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
from flashlab.operator.windows import load_rows


@triton.jit
def windows_preprocess_kernel(
    O, dO, L, dL, D, L_log2,                           # pointers; all but dO are contiguous
    stride_dOb, stride_dOh, stride_dOn, stride_dOd,
    scale, H_q, N_q, N_out, batch, cu_seqlens, block,
    d_v: tl.constexpr, B_r: tl.constexpr, B_dv: tl.constexpr, has_dL: tl.constexpr,
):
    """As fa2_backward's kernel, with N_out rows of each head; beyond its N_q rows L is +inf.

    cu_seqlens: the results go to the slots of packed sequences, in blocks of `block` rows, see sequences.py
    """
    T_r = tl.cdiv(N_out, B_r)
    i = tl.program_id(0) % T_r
    head = (tl.program_id(0) // T_r).to(tl.int64)
    dO += head // H_q * stride_dOb + head % H_q * stride_dOh
    rows, end = i * B_r + tl.arange(0, B_r), N_q                                   # (B_r,)
    places = rows                                                                  # (B_r,)       of the results
    if cu_seqlens is not None:
        first, end = rows_of_part(i * B_r, cu_seqlens, batch, N_q, block)
        rows = first + tl.arange(0, B_r)                                           # (B_r,)
    apart = 1 if batch is None else H_q                # rows of O from one row of a head to the next
    O += output_rows(head, 0, H_q, N_q, batch) * d_v
    O_i = load_rows(O, rows, end, apart * d_v, 1, d_v, B_dv)                       # (B_r, B_dv)
    dO_i = load_rows(dO, rows, end, stride_dOn, stride_dOd, d_v, B_dv)             # (B_r, B_dv)

    at = head * N_q + rows                                                         # (B_r,)
    L_i = tl.load(L + at, mask=rows < end, other=-float("inf"))
    D_i = tl.sum(O_i.to(L_i.dtype) * dO_i.to(L_i.dtype), 1)                        # (B_r,)
    if has_dL:
        D_i -= tl.load(dL + at, mask=rows < end, other=0.0)
    out = head * N_out + places                                                    # (B_r,)
    tl.store(D + out, D_i * scale, mask=places < N_out)
    L_i = tl.where(L_i == -float("inf"), float("inf"), L_i)                        # exp2(S - inf): P is 0 there
    tl.store(L_log2 + out, L_i * LOG2_E, mask=places < N_out)


@triton.jit
def windows_dkdv_kernel(
    Q, K, V, dO, L_log2, D, dK, dV, seed,              # pointers; L_log2, D, dK, dV are contiguous
    stride_Qb, stride_Qh, stride_Qn, stride_Qd, stride_dOb, stride_dOh, stride_dOn, stride_dOd,
    stride_Kb, stride_Kh, stride_Kn, stride_Kd, stride_Vb, stride_Vh, stride_Vn, stride_Vd,
    scale, H_q, H_kv, N_q, N_k, left, right, cu_seqlens_q, cu_seqlens_k, batch,    # from left on: None if not asked
    d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr, dropout_p: tl.constexpr, B_r: tl.constexpr,
    B_c: tl.constexpr, B_d: tl.constexpr, B_dv: tl.constexpr,
):
    T_c = tl.cdiv(N_k, B_c) if batch is None else tl.num_programs(0) // H_kv
    j, head_kv = tl.program_id(0) % T_c, (tl.program_id(0) // T_c).to(tl.int64)
    b, h_kv, group = head_kv // H_kv, head_kv % H_kv, H_q // H_kv
    all_q, all_k = N_q, N_k                            # of a packed call: N_q, N_k become the sequence's own
    j, start_k, N_k, start_q, N_q = sequence_at(j, cu_seqlens_k, cu_seqlens_q, batch, N_k, N_q, B_c)
    Q += b * stride_Qb + start_q * stride_Qn
    dO += b * stride_dOb + start_q * stride_dOn
    K += b * stride_Kb + h_kv * stride_Kh + start_k * stride_Kn
    V += b * stride_Vb + h_kv * stride_Vh + start_k * stride_Vn
    keys = j * B_c + tl.arange(0, B_c)                                             # (B_c,)
    K_j = load_rows(K, keys, N_k, stride_Kn, stride_Kd, d, B_d)                    # (B_c, B_d)
    V_j = load_rows(V, keys, N_k, stride_Vn, stride_Vd, d_v, B_dv)                 # (B_c, B_dv)
    dK_j = tl.zeros((B_c, B_d), D.dtype.element_ty)                                # (B_c, B_d)
    dV_j = tl.zeros((B_c, B_dv), D.dtype.element_ty)                               # (B_c, B_dv)
    first, count = query_blocks_that_see(j, B_r, B_c, N_q, N_k, causal, left, right)
    for step in range(0, group * count):
        each = tl.maximum(1, count)                    # after step // count the compiler takes count > 0
        h, i = h_kv * group + step // each, first + step % each
        head, rows = b * H_q + h, i * B_r + tl.arange(0, B_r)                      # (B_r,)
        row_0 = head * all_q + start_q                 # where the sequence's L and D begin
        Q_i = load_rows(Q + h * stride_Qh, rows, N_q, stride_Qn, stride_Qd, d, B_d)            # (B_r, B_d)
        dO_i = load_rows(dO + h * stride_dOh, rows, N_q, stride_dOn, stride_dOd, d_v, B_dv)    # (B_r, B_dv)
        L_i = tl.load(L_log2 + row_0 + rows, mask=rows < N_q, other=0.0)           # (B_r,)
        if dropout_p > 0:
            kept_T = kept(seed, row_0, i * B_r, j * B_c, all_k, dropout_p, B_r, B_c).T     # (B_c, B_r)
        S_T = tl.dot(K_j, Q_i.T, input_precision="ieee")                           # (B_c, B_r)
        P_T = tl.exp2(S_T * (scale * LOG2_E) - L_i)                                # (B_c, B_r)
        seen = visible(rows, keys[:, None], N_q, N_k, causal, left, right)         # (B_c, B_r or 1)
        P_T = tl.where((rows < N_q) & seen, P_T, 0.0)  # past the end a key of -inf times Q_i's 0 is NaN
        dP_T = tl.dot(V_j, dO_i.T, input_precision="ieee")                         # (B_c, B_r)
        D_i = tl.load(D + row_0 + rows, mask=rows < N_q, other=0.0)                # here: earlier costs registers
        dS_T = P_T * (dP_T * scale - D_i)                                          # (B_c, B_r)
        if dropout_p > 0:
            dS_T = P_T * (tl.where(kept_T, dP_T * (scale / (1 - dropout_p)), 0.0) - D_i)
            P_T = tl.where(kept_T, P_T, 0.0)           # what met V in the forward; over 1 - p after the loop
        dV_j += tl.dot(P_T.to(dO_i.dtype), dO_i, input_precision="ieee")           # (B_c, B_dv)
        dK_j += tl.dot(dS_T.to(Q_i.dtype), Q_i, input_precision="ieee")            # (B_c, B_d)
    local, col, col_v = tl.arange(0, B_c)[:, None], tl.arange(0, B_d), tl.arange(0, B_dv)
    first, apart = output_rows(head_kv, start_k + j * B_c, H_kv, all_k, batch), 1 if batch is None else H_kv
    dK, dV, rest = dK + first * d, dV + first * d_v, N_k - j * B_c
    tl.store(dK + local * apart * d + col, dK_j, mask=(local < rest) & (col < d))
    tl.store(dV + local * apart * d_v + col_v, dV_j * (1 / (1 - dropout_p)), mask=(local < rest) & (col_v < d_v))


@triton.jit
def windows_dq_kernel(
    Q, K, V, dO, L_log2, D, dQ, seed,                  # pointers; L_log2, D, dQ are contiguous
    stride_Qb, stride_Qh, stride_Qn, stride_Qd, stride_dOb, stride_dOh, stride_dOn, stride_dOd,
    stride_Kb, stride_Kh, stride_Kn, stride_Kd, stride_Vb, stride_Vh, stride_Vn, stride_Vd,
    scale, H_q, H_kv, N_q, N_k, left, right, cu_seqlens_q, cu_seqlens_k, batch,    # from left on: None if not asked
    d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr, dropout_p: tl.constexpr, B_r: tl.constexpr,
    B_c: tl.constexpr, B_d: tl.constexpr, B_dv: tl.constexpr,
):
    T_r = tl.cdiv(N_q, B_r) if batch is None else tl.num_programs(0) // H_q
    i, head = T_r - 1 - tl.program_id(0) % T_r, (tl.program_id(0) // T_r).to(tl.int64)
    b, h, h_kv = head // H_q, head % H_q, head % H_q // (H_q // H_kv)
    all_q, all_k = N_q, N_k                            # of a packed call: N_q, N_k become the sequence's own
    i, start_q, N_q, start_k, N_k = sequence_at(i, cu_seqlens_q, cu_seqlens_k, batch, N_q, N_k, B_r)
    Q += b * stride_Qb + h * stride_Qh + start_q * stride_Qn
    dO += b * stride_dOb + h * stride_dOh + start_q * stride_dOn
    K += b * stride_Kb + h_kv * stride_Kh + start_k * stride_Kn
    V += b * stride_Vb + h_kv * stride_Vh + start_k * stride_Vn
    rows = i * B_r + tl.arange(0, B_r)                                             # (B_r,)
    Q_i = load_rows(Q, rows, N_q, stride_Qn, stride_Qd, d, B_d)                    # (B_r, B_d)
    dO_i = load_rows(dO, rows, N_q, stride_dOn, stride_dOd, d_v, B_dv)             # (B_r, B_dv)
    row_0 = head * all_q + start_q                     # where the sequence's L and D begin
    L_i = tl.load(L_log2 + row_0 + rows, mask=rows < N_q, other=float("inf"))      # (B_r,)
    D_i = tl.load(D + row_0 + rows, mask=rows < N_q, other=0.0)                    # (B_r,)
    dQ_i = tl.zeros((B_r, B_d), D.dtype.element_ty)                                # (B_r, B_d)

    first, end = key_blocks_seen(i, B_r, B_c, N_q, N_k, causal, left, right)
    for j in range(first, end):
        keys = j * B_c + tl.arange(0, B_c)                                         # (B_c,)
        K_j = load_rows(K, keys, N_k, stride_Kn, stride_Kd, d, B_d)                # (B_c, B_d)
        V_j = load_rows(V, keys, N_k, stride_Vn, stride_Vd, d_v, B_dv)             # (B_c, B_dv)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee")                          # (B_r, B_c)
        P_ij = tl.exp2(S_ij * (scale * LOG2_E) - L_i[:, None])                     # (B_r, B_c)
        P_ij = tl.where(visible(rows[:, None], keys, N_q, N_k, causal, left, right), P_ij, 0.0)
        dP_ij = tl.dot(dO_i, V_j.T, input_precision="ieee")                        # (B_r, B_c)
        if dropout_p > 0:
            stays = kept(seed, row_0, i * B_r, j * B_c, all_k, dropout_p, B_r, B_c)
            dP_ij = tl.where(stays, dP_ij / (1 - dropout_p), 0.0)                  # (B_r, B_c)
        dS_ij = P_ij * (dP_ij * scale - D_i[:, None])                              # (B_r, B_c)
        dQ_i += tl.dot(dS_ij.to(K_j.dtype), K_j, input_precision="ieee")           # (B_r, B_d)

    col = tl.arange(0, B_d).to(tl.int64)
    dQ_at = dQ + output_rows(head, start_q + rows, H_q, all_q, batch)[:, None] * d + col       # (B_r, B_d)
    tl.store(dQ_at, dQ_i, mask=(rows[:, None] < N_q) & (col < d))


def windows_backward(Q, K, V, O, dO, L, *, dL=None, B_r=None, B_c=None, deterministic=False, **options):
    """The gradients of attention for every batch and head, in three launches, with all of the operator's options.

    Options: as windows_forward. deterministic changes nothing: no two programs write the same element
    Shapes:  as fa2_triton_backward; packed gradients have the strides of contiguous (N, H, d)
    Raises:  TypeError or ValueError before anything is launched
    """
    return checked_backward(launch, Q, K, V, O, dO, L, dL, B_r=B_r, B_c=B_c, deterministic=deterministic, **options)


def launch(Q, K, V, O, dO, L, dL, dQ, dK, dV, *, B_r=None, B_c=None, **options):
    """The three launches in order, each (kernel, grid, arguments); nothing is checked and nothing runs."""
    (B, H_q, N_q, _), (_, H_kv, N_k, _) = Q.shape, V.shape
    options = ORDINARY | options
    batch = options["batch"]
    first, rows = preprocess(O, dO, L, dL, options["scale"], batch=batch)
    for_dkdv, for_dq = tiles_by_hand(Q, V, options, B_r, B_c)
    shared = shared_arguments(Q, K, V, options, dO=dO) | rows
    per_keys, per_queries = B * H_kv * slots(N_k, for_dkdv["B_c"], batch), B * H_q * slots(N_q, for_dq["B_r"], batch)
    return (first, (windows_dkdv_kernel, (per_keys,), shared | {"dK": dK, "dV": dV} | for_dkdv),
            (windows_dq_kernel, (per_queries,), shared | {"dQ": dQ} | for_dq))


def preprocess(O, dO, L, dL, scale, N_out=None, batch=None, cu_seqlens=None, block=None):
    """As fa2_backward.preprocess, with N_out rows of each head; with cu_seqlens in slots for blocks of `block` rows."""
    (B, H_q, N_q, d_v), B_r = O.shape, 32
    N_out = N_out or N_q
    rows = {name: temporary(torch.empty, B, H_q, N_out, dtype=L.dtype, device=L.device) for name in ("L_log2", "D")}
    arguments = rows | {"O": O, "dO": dO, "L": L, "dL": dL, "has_dL": dL is not None, "scale": scale, "batch": batch}
    arguments |= {"cu_seqlens": cu_seqlens, "block": None if cu_seqlens is None else block}
    arguments |= {f"stride_dO{axis}": step for axis, step in zip("bhnd", dO.stride(), strict=True)}
    arguments |= {"H_q": H_q, "N_q": N_q, "N_out": N_out, "d_v": d_v, "B_dv": padded(d_v), "B_r": B_r, "num_warps": 4}
    return (windows_preprocess_kernel, (B * H_q * triton.cdiv(N_out, B_r),), arguments), rows
