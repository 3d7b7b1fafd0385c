# kind: one mistake
# what: the query heads of a key head are taken H_kv apart instead of side by side
# shows: H_kv > 1 and group > 1: the wrong heads are added up
"""ex11_dkdv · dK and dV as a Triton kernel"""

import triton
import triton.language as tl


@triton.jit
def dkdv_kernel(Q, K, V, dO, L, D, dK, dV,
                stride_Qh, stride_Qn, stride_Qd, stride_Kh, stride_Kn, stride_Kd, stride_Vh, stride_Vn, stride_Vd,
                stride_dOh, stride_dOn, stride_dOd, stride_Lh, stride_Ln, stride_Dh, stride_Dn,
                stride_dKh, stride_dKn, stride_dKd, stride_dVh, stride_dVn, stride_dVd, scale, N_q, N_k,
                group: tl.constexpr, d: tl.constexpr, causal: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """One key block of one key head. Launched with the grid (⌈N_k / B_c⌉, H_kv)."""
    j, h_kv = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    keys = j * B_c + tl.arange(0, B_c)                              # (B_c,)
    cols = tl.arange(0, d)                                          # (d,)
    key_ok = keys[:, None] < N_k                                    # (B_c, 1)
    K_j = tl.load(K + h_kv * stride_Kh + keys[:, None] * stride_Kn + cols * stride_Kd, mask=key_ok, other=0.0)
    V_j = tl.load(V + h_kv * stride_Vh + keys[:, None] * stride_Vn + cols * stride_Vd, mask=key_ok, other=0.0)
    dK_j = tl.zeros((B_c, d), tl.float32)
    dV_j = tl.zeros((B_c, d), tl.float32)
    first = 0
    if causal:
        first = tl.maximum(0, j * B_c - (N_k - N_q)) // B_r
    for g in range(0, group):
        h = g * tl.num_programs(1) + h_kv
        for i in range(first, tl.cdiv(N_q, B_r)):
            rows = (i * B_r + tl.arange(0, B_r)).to(tl.int64)
            row_ok = rows[:, None] < N_q
            Q_i = tl.load(Q + h * stride_Qh + rows[:, None] * stride_Qn + cols * stride_Qd, mask=row_ok, other=0.0)
            dO_i = tl.load(dO + h * stride_dOh + rows[:, None] * stride_dOn + cols * stride_dOd, mask=row_ok, other=0.0)
            L_i = tl.load(L + h * stride_Lh + rows * stride_Ln, mask=rows < N_q, other=0.0)
            D_i = tl.load(D + h * stride_Dh + rows * stride_Dn, mask=rows < N_q, other=0.0)
            S_T = tl.dot(K_j, Q_i.T, input_precision="ieee") * scale
            P_T = tl.exp(S_T - tl.where(L_i == -float("inf"), float("inf"), L_i)[None, :])
            if causal:
                P_T = tl.where(keys[:, None] <= rows[None, :] + (N_k - N_q), P_T, 0.0)
            dP_T = tl.dot(V_j, dO_i.T, input_precision="ieee")
            dS_T = P_T * (dP_T - D_i[None, :])
            dV_j += tl.dot(P_T.to(dO_i.dtype), dO_i, input_precision="ieee")
            dK_j += tl.dot(dS_T.to(Q_i.dtype), Q_i, input_precision="ieee")
    dK_j *= scale
    tl.store(dK + h_kv * stride_dKh + keys[:, None] * stride_dKn + cols * stride_dKd, dK_j, mask=key_ok)
    tl.store(dV + h_kv * stride_dVh + keys[:, None] * stride_dVn + cols * stride_dVd, dV_j, mask=key_ok)
