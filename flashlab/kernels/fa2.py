"""FA2's forward pass as a GPU kernel: Triton, with nothing but pointers and masks.

Read `fa2_forward_kernel` beside flashlab/rungs/fa2.py: the same lines in the same order. One program owns one query
block of one head; the loop over query blocks has become the launch grid. Without a GPU the same kernel runs in Triton's
interpreter, on CPU tensors, slowly.
"""

from functools import partial

import triton
import triton.language as tl

from flashlab.kernels.dropout import kept
from flashlab.kernels.launch import checked_forward, launch_by_blocks


@triton.jit
def fa2_forward_kernel(
    Q, K, V, O, L, seed,                               # pointers to each tensor's first element
    stride_Qb, stride_Qh, stride_Qn, stride_Qd, stride_Kb, stride_Kh, stride_Kn, stride_Kd,   # elements to step over to
    stride_Vb, stride_Vh, stride_Vn, stride_Vd,        # the next batch, head, row, column; O, L contiguous
    scale, H_q, H_kv, N_q, N_k, d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr, dropout_p: tl.constexpr,
    B_r: tl.constexpr, B_c: tl.constexpr, B_d: tl.constexpr, B_dv: tl.constexpr,   # tile sizes; d, d_v padded to 2^n
):
    # Which query block of which head? Last blocks first: causal ones see most keys, and late long ones leave SMs idle.
    T_r = tl.cdiv(N_q, B_r)
    i = T_r - 1 - tl.program_id(0) % T_r
    head = (tl.program_id(0) // T_r).to(tl.int64)      # int64 in every offset: 2^31 elements are only 4 GB of float16
    b, h, h_kv = head // H_q, head % H_q, head % H_q // (H_q // H_kv)              # neighbours share a key head
    Q += b * stride_Qb + h * stride_Qh
    K += b * stride_Kb + h_kv * stride_Kh
    V += b * stride_Vb + h_kv * stride_Vh

    rows = i * B_r + tl.arange(0, B_r)                 # (B_r,)
    col, col_v = tl.arange(0, B_d).to(tl.int64), tl.arange(0, B_dv).to(tl.int64)
    row_ok = rows[:, None] < N_q                       # (B_r, 1)      the last tile is short: read 0, write nothing
    Q_at = Q + rows[:, None].to(tl.int64) * stride_Qn + col * stride_Qd            # (B_r, B_d)   addresses
    Q_i = tl.load(Q_at, mask=row_ok & (col < d), other=0.0)                        # (B_r, B_d)
    m_i = tl.full((B_r,), -float("inf"), tl.float32)                               # (B_r,)       below any score
    l_i = tl.zeros((B_r,), tl.float32)                                             # (B_r,)
    O_i = tl.zeros((B_r, B_dv), tl.float32)                                        # (B_r, B_dv)
    end = tl.minimum(N_q, (i + 1) * B_r) + N_k - N_q if causal else N_k            # keys from here on are hidden
    for j in range(0, tl.cdiv(end, B_c)):
        keys = j * B_c + tl.arange(0, B_c)             # (B_c,)
        key_ok = keys[:, None] < N_k                   # (B_c, 1)
        K_at = K + keys[:, None].to(tl.int64) * stride_Kn + col * stride_Kd        # (B_c, B_d)
        K_j = tl.load(K_at, mask=key_ok & (col < d), other=0.0)                    # (B_c, B_d)
        V_at = V + keys[:, None].to(tl.int64) * stride_Vn + col_v * stride_Vd      # (B_c, B_dv)
        V_j = tl.load(V_at, mask=key_ok & (col_v < d_v), other=0.0)                # (B_c, B_dv)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale                  # (B_r, B_c)   "ieee": not TF32
        visible = keys <= rows[:, None] + (N_k - N_q) if causal else keys < N_k    # (B_r or 1, B_c)
        S_ij = tl.where(visible, S_ij, -float("inf"))                              # (B_r, B_c)
        m_new = tl.maximum(m_i, tl.max(S_ij, 1))                                   # (B_r,)
        m_safe = tl.where(m_new == -float("inf"), 0.0, m_new)                      # (B_r,)       no -inf - -inf: NaN
        alpha = tl.exp(m_i - m_safe)                                               # (B_r,)       0 at first: m_i = -inf
        P_ij = tl.exp(S_ij - m_safe[:, None])                                      # (B_r, B_c)
        l_i = alpha * l_i + tl.sum(P_ij, 1)                                        # (B_r,)
        if dropout_p > 0:                                                          # compiled only if asked for
            stays = kept(seed, head * N_q, i * B_r, j * B_c, N_k, dropout_p, B_r, B_c)
            P_ij = tl.where(stays, P_ij, 0.0)                                      # (B_r, B_c)   after the sum
        PV = tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")               # (B_r, B_dv)
        O_i = alpha[:, None] * O_i + PV                                            # (B_r, B_dv)  divided after the loop
        m_i = m_new
    l_safe = tl.where(l_i == 0, 1.0, l_i)                                          # (B_r,)       no key: O_i stays 0
    O_at = O + (head * N_q + rows)[:, None] * d_v + col_v                          # (B_r, B_dv)
    tl.store(O_at, O_i / (l_safe * (1 - dropout_p))[:, None], mask=row_ok & (col_v < d_v))
    tl.store(L + head * N_q + rows, m_i + tl.log(l_safe), mask=rows < N_q)         # -inf + 0 where no key is visible


KERNEL = fa2_forward_kernel
launch = partial(launch_by_blocks, KERNEL, dropout_p=0.0, seed=None)


def fa2_triton_forward(Q, K, V, *, causal=False, scale=None, dropout_p=0.0, seed=None, B_r=None, B_c=None):
    """Exact attention for every batch and head in one launch.

    Shapes:  Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d_v)
             -> O (B, H_q, N_q, d_v) in Q's dtype, L (B, H_q, N_q) float32, natural-log logsumexp
             any strides; d, d_v <= 256; H_q a multiple of H_kv; float16, bfloat16, float32
    Tiles:   B_r x B_c, powers of two >= 16, by default those of `launch.pick_tiles`
    Dropout: seed, a 0-dim int64 tensor beside Q, and the place of a weight decide whether it is kept: no mask is stored
    Error:   at most 2x that of naive in the same dtype, both against float64
    Source:  Dao 2023, arXiv:2307.08691, Algorithm 1
    New:     against fa2: the loop over query blocks is the launch grid, B * H_q * ceil(N_q / B_r) programs
    """
    return checked_forward(KERNEL, launch, Q, K, V, causal=causal, scale=scale, dropout_p=dropout_p, seed=seed,
                           B_r=B_r, B_c=B_c)
