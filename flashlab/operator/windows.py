"""Attention with a window, packed sequences and dropout, on any GPU: what the ladder's kernels leave out.

`windows_forward_kernel` is the ladder's first kernel; sequences.py finds the keys that a query sees and the rows of a
sequence. An option that a call leaves out is absent from its compiled kernel.
"""

import triton
import triton.language as tl

from flashlab.kernels.dropout import kept
from flashlab.kernels.launch import LOG2_E, checked_forward, pick_tiles, positive_scale, shared_arguments
from flashlab.operator.sequences import ORDINARY, key_blocks_seen, output_rows, sequence_at, slots, visible


@triton.jit
def load_rows(T, rows, N, stride_n, stride_d, width, B_w: tl.constexpr):
    """Rows of T (N, width) as a tile B_w wide: 0 beyond the N rows and beyond the width."""
    col = tl.arange(0, B_w).to(tl.int64)
    at = T + rows[:, None].to(tl.int64) * stride_n + col * stride_d
    return tl.load(at, mask=(rows[:, None] < N) & (col < width), other=0.0)


@triton.jit
def windows_forward_kernel(
    Q, K, V, O, L, seed,                               # pointers to each tensor's first element
    stride_Qb, stride_Qh, stride_Qn, stride_Qd, stride_Kb, stride_Kh, stride_Kn, stride_Kd,   # elements to step over to
    stride_Vb, stride_Vh, stride_Vn, stride_Vd,        # the next batch, head, row, column; O, L contiguous
    scale, H_q, H_kv, N_q, N_k, left, right, cu_seqlens_q, cu_seqlens_k, batch,    # from left on: None if not asked
    d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr, dropout_p: tl.constexpr, B_r: tl.constexpr,
    B_c: tl.constexpr, B_d: tl.constexpr, B_dv: tl.constexpr,
):
    T_r = tl.cdiv(N_q, B_r) if batch is None else tl.num_programs(0) // H_q
    i = T_r - 1 - tl.program_id(0) % T_r
    head = (tl.program_id(0) // T_r).to(tl.int64)      # int64 in every offset
    b, h, h_kv = head // H_q, head % H_q, head % H_q // (H_q // H_kv)              # neighbours share a key head
    all_q, all_k = N_q, N_k                            # of a packed call: N_q, N_k become the sequence's own
    i, start_q, N_q, start_k, N_k = sequence_at(i, cu_seqlens_q, cu_seqlens_k, batch, N_q, N_k, B_r)
    Q += b * stride_Qb + h * stride_Qh + start_q * stride_Qn
    K += b * stride_Kb + h_kv * stride_Kh + start_k * stride_Kn
    V += b * stride_Vb + h_kv * stride_Vh + start_k * stride_Vn
    rows = i * B_r + tl.arange(0, B_r)                                             # (B_r,)
    Q_i = load_rows(Q, rows, N_q, stride_Qn, stride_Qd, d, B_d)                    # (B_r, B_d)
    m_i = tl.full((B_r,), -float("inf"), tl.float32)                               # (B_r,)       below any score
    l_i = tl.zeros((B_r,), tl.float32)                                             # (B_r,)
    O_i = tl.zeros((B_r, B_dv), tl.float32)                                        # (B_r, B_dv)
    scale_log2 = scale * LOG2_E                        # > 0
    first, end = key_blocks_seen(i, B_r, B_c, N_q, N_k, causal, left, right)       # the others are hidden from all rows
    for j in range(first, end):
        keys = j * B_c + tl.arange(0, B_c)                                         # (B_c,)
        K_j = load_rows(K, keys, N_k, stride_Kn, stride_Kd, d, B_d)                # (B_c, B_d)
        V_j = load_rows(V, keys, N_k, stride_Vn, stride_Vd, d_v, B_dv)             # (B_c, B_dv)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee")                          # (B_r, B_c)   "ieee": not TF32
        S_ij = tl.where(visible(rows[:, None], keys, N_q, N_k, causal, left, right), S_ij, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(S_ij, 1) * scale_log2)                      # (B_r,)       in base 2
        m_safe = tl.where(m_new == -float("inf"), 0.0, m_new)                      # (B_r,)       no -inf - -inf: NaN
        alpha = tl.exp2(m_i - m_safe)                                              # (B_r,)       0 at first: m_i = -inf
        P_ij = tl.exp2(S_ij * scale_log2 - m_safe[:, None])                        # (B_r, B_c)
        l_i = alpha * l_i + tl.sum(P_ij, 1)                                        # (B_r,)
        if dropout_p > 0:                                                          # compiled only if asked for
            stays = kept(seed, head * all_q + start_q, i * B_r, j * B_c, all_k, dropout_p, B_r, B_c)
            P_ij = tl.where(stays, P_ij, 0.0)                                      # (B_r, B_c)   after the sum
        PV = tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")               # (B_r, B_dv)
        O_i = alpha[:, None] * O_i + PV                                            # (B_r, B_dv)  divided after the loop
        m_i = m_new
    l_safe = tl.where(l_i == 0, 1.0, l_i)                                          # (B_r,)       no key: O_i stays 0
    col_v = tl.arange(0, B_dv).to(tl.int64)
    O_at = O + output_rows(head, start_q + rows, H_q, all_q, batch)[:, None] * d_v + col_v     # (B_r, B_dv)
    tl.store(O_at, O_i / (l_safe * (1 - dropout_p))[:, None], mask=(rows[:, None] < N_q) & (col_v < d_v))
    L_i = (m_i + tl.log2(l_safe)) / LOG2_E                                         # (B_r,)       -inf + 0: no key
    tl.store(L + (head * all_q + start_q) + rows, L_i, mask=rows < N_q)


KERNEL = windows_forward_kernel


def windows_forward(Q, K, V, *, B_r=None, B_c=None, **options):
    """Exact attention for every batch and head in one launch, with all of the operator's options.

    Options: as kernels/launch.check_call takes them: causal, scale, window, cu_seqlens_q, cu_seqlens_k, dropout_p, seed
    Shapes:  as fa2_triton_forward; packed sequences have B = 1, and O the strides of a contiguous (N_q, H_q, d_v)
    Raises:  TypeError or ValueError before anything is launched
    """
    return checked_forward(KERNEL, launch, Q, K, V, B_r=B_r, B_c=B_c, **options)


def launch(Q, K, V, O, L, *, B_r=None, B_c=None, **options):
    """The grid and the arguments of one launch, tile sizes and warps included; nothing is checked and nothing runs."""
    tiles = pick_tiles(Q, V, options, B_r, B_c)
    Q, scale = positive_scale(Q, options["scale"])
    options = ORDINARY | options | {"scale": scale}
    grid = (Q.shape[0] * Q.shape[1] * slots(Q.shape[2], tiles["B_r"], options["batch"]),)
    return grid, shared_arguments(Q, K, V, options) | {"O": O, "L": L} | tiles
