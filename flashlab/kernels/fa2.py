"""FA2's forward pass as a GPU kernel: Triton, with nothing but pointers and masks.

Read `fa2_forward_kernel` from top to bottom beside flashlab/rungs/fa2.py: the same lines in the same order.
One program owns one query block of one head; the loop over query blocks has become the launch grid.
Without a GPU the same kernel runs in Triton's interpreter, on CPU tensors, slowly.
"""

import triton
import triton.language as tl

from flashlab.kernels.dropout import kept
from flashlab.kernels.launch import check_call, forward, pick_tiles, shared_arguments
from flashlab.operator.sequences import ORDINARY, key_blocks_seen, output_rows, sequence_at, slots, visible


@triton.jit
def fa2_forward_kernel(
    Q, K, V, O, L, seed,                               # pointers to each tensor's first element
    stride_Qb, stride_Qh, stride_Qn, stride_Qd,        # elements to step over for the next batch, head, row, column
    stride_Kb, stride_Kh, stride_Kn, stride_Kd,
    stride_Vb, stride_Vh, stride_Vn, stride_Vd,        # O and L are contiguous: their strides follow from the sizes
    scale, H_q, H_kv, N_q, N_k, left, right, cu_seqlens_q, cu_seqlens_k, batch,    # from left on: None in an ordinary call
    d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr, dropout_p: tl.constexpr,
    B_r: tl.constexpr, B_c: tl.constexpr,              # tile sizes are powers of two, and so are the widths
    B_d: tl.constexpr, B_dv: tl.constexpr,             # d and d_v are padded to
):
    # Which query block of which head? Last blocks first: causal ones see most keys, and late long ones leave SMs idle.
    T_r = tl.cdiv(N_q, B_r) if batch is None else tl.num_programs(0) // H_q
    i = T_r - 1 - tl.program_id(0) % T_r
    head = (tl.program_id(0) // T_r).to(tl.int64)      # int64 in every offset: 2^31 elements are only 4 GB of float16
    b, h = head // H_q, head % H_q
    h_kv = h // (H_q // H_kv)                          # grouped-query attention: neighbours share a key head, uncopied
    all_q, all_k = N_q, N_k                            # a packed sequence begins at start_q and start_k; its N_q and N_k are all
    i, start_q, N_q, start_k, N_k = sequence_at(i, cu_seqlens_q, cu_seqlens_k, batch, N_q, N_k, B_r)
    Q += b * stride_Qb + h * stride_Qh + start_q * stride_Qn
    K += b * stride_Kb + h_kv * stride_Kh + start_k * stride_Kn
    V += b * stride_Vb + h_kv * stride_Vh + start_k * stride_Vn

    rows = i * B_r + tl.arange(0, B_r)                 # (B_r,)
    col, col_v = tl.arange(0, B_d).to(tl.int64), tl.arange(0, B_dv).to(tl.int64)
    row_ok = rows[:, None] < N_q                       # (B_r, 1)      the last tile is short: read 0 there, write nothing
    Q_at = Q + rows[:, None].to(tl.int64) * stride_Qn + col * stride_Qd            # (B_r, B_d)   addresses
    Q_i = tl.load(Q_at, mask=row_ok & (col < d), other=0.0)                        # (B_r, B_d)

    m_i = tl.full((B_r,), -float("inf"), tl.float32)                               # (B_r,)       below any score
    l_i = tl.zeros((B_r,), tl.float32)                                             # (B_r,)
    O_i = tl.zeros((B_r, B_dv), tl.float32)                                        # (B_r, B_dv)
    first, end = key_blocks_seen(i, B_r, B_c, N_q, N_k, causal, left, right)       # the others are hidden from every row
    for j in range(first, end):
        keys = j * B_c + tl.arange(0, B_c)             # (B_c,)
        key_ok = keys[:, None] < N_k                   # (B_c, 1)
        K_at = K + keys[:, None].to(tl.int64) * stride_Kn + col * stride_Kd        # (B_c, B_d)
        K_j = tl.load(K_at, mask=key_ok & (col < d), other=0.0)                    # (B_c, B_d)
        V_at = V + keys[:, None].to(tl.int64) * stride_Vn + col_v * stride_Vd      # (B_c, B_dv)
        V_j = tl.load(V_at, mask=key_ok & (col_v < d_v), other=0.0)                # (B_c, B_dv)

        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale                  # (B_r, B_c)   "ieee": float32, not TF32
        seen = visible(rows[:, None], keys, N_q, N_k, causal, left, right)         # (B_r or 1, B_c)
        S_ij = tl.where(seen, S_ij, -float("inf"))                                 # (B_r, B_c)

        m_new = tl.maximum(m_i, tl.max(S_ij, 1))                                   # (B_r,)
        m_safe = tl.where(m_new == -float("inf"), 0.0, m_new)                      # (B_r,)       -inf minus -inf would be NaN
        alpha = tl.exp(m_i - m_safe)                                               # (B_r,)       0 the first time: m_i = -inf
        P_ij = tl.exp(S_ij - m_safe[:, None])                                      # (B_r, B_c)
        l_i = alpha * l_i + tl.sum(P_ij, 1)                                        # (B_r,)
        if dropout_p > 0:                                                          # chapter 11; compiled only if asked for
            P_ij = tl.where(kept(seed, head, start_q + rows[:, None], keys, all_q, all_k, dropout_p), P_ij, 0.0)  # after the sum
        PV = tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")               # (B_r, B_dv)
        O_i = alpha[:, None] * O_i + PV                                            # (B_r, B_dv)  divided by l_i after the loop
        m_i = m_new

    l_safe = tl.where(l_i == 0, 1.0, l_i)                                          # (B_r,)       no visible key: O_i stays 0
    O_at = O + output_rows(head, start_q + rows, H_q, all_q, batch)[:, None] * d_v + col_v     # (B_r, B_dv)
    tl.store(O_at, O_i / (l_safe * (1 - dropout_p))[:, None], mask=row_ok & (col_v < d_v))
    tl.store(L + (head * all_q + start_q) + rows, m_i + tl.log(l_safe), mask=rows < N_q)         # -inf + 0 where no key is visible


KERNEL = fa2_forward_kernel


def fa2_triton_forward(
    Q, K, V, *, causal=False, window=None, cu_seqlens_q=None, cu_seqlens_k=None, scale=None, dropout_p=0.0, seed=None,
    B_r=None, B_c=None,
):
    """Exact attention for every batch and head in one launch.

    Shapes:  Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d_v)
             -> O (B, H_q, N_q, d_v) in Q's dtype, L (B, H_q, N_q) float32, natural-log logsumexp
             any strides; d, d_v <= 256; H_q a multiple of H_kv; float16, bfloat16, float32
    Window:  (left, right): query i sees keys i + N_k - N_q - left to i + N_k - N_q + right, -1 for no limit; causal is (-1, 0)
    Packed:  with cu_seqlens_q and cu_seqlens_k, int32 (batch + 1,), B is 1 and the sequences lie one after the other along N;
             O then has the strides of a contiguous (N_q, H_q, d_v)
    Tiles:   B_r x B_c, powers of two >= 16, by default what `launch.pick_tiles` picks
    Dropout: seed, a 0-dim int64 tensor beside Q, and the place of a weight decide whether it is kept: no mask is stored
    Error:   at most 2x that of naive in the same dtype, both against float64
    Raises:  TypeError or ValueError before anything is launched
    Source:  Dao 2023, arXiv:2307.08691, Algorithm 1
    New:     against fa2: the loop over query blocks is the launch grid, B * H_q * ceil(N_q / B_r) programs
    """
    options = check_call(Q, K, V, B_r=B_r, B_c=B_c, causal=causal, window=window, cu_seqlens_q=cu_seqlens_q,
                         cu_seqlens_k=cu_seqlens_k, scale=scale, dropout_p=dropout_p, seed=seed)
    return forward(KERNEL, launch, Q, K, V, B_r=B_r, B_c=B_c, **options)


def launch(Q, K, V, O, L, *, B_r=None, B_c=None, **options):
    """The grid and the arguments of one launch, tile sizes and warps included; nothing is checked and nothing runs."""
    tiles = pick_tiles(Q, V, options, B_r, B_c)
    options = ORDINARY | options
    grid = (Q.shape[0] * Q.shape[1] * slots(Q.shape[2], tiles["B_r"], options["batch"]),)
    return grid, shared_arguments(Q, K, V, options) | {"O": O, "L": L} | tiles
