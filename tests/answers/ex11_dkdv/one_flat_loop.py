# kind: right
# what: a single loop over heads times blocks, scale at the end, hidden lse as +inf
"""ex11_dkdv: my answer."""

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
    T_r = tl.cdiv(N_q, B_r)
    for step in range(group * T_r):
        h = h_kv * group + step // T_r
        n = (step % T_r * B_r + tl.arange(0, B_r)).to(tl.int64)
        there = n < N_q
        Q_i = tl.load(Q + h * stride_Qh + n[:, None] * stride_Qn + cols[None, :] * stride_Qd, there[:, None], 0.0)
        dO_i = tl.load(dO + h * stride_dOh + n[:, None] * stride_dOn + cols[None, :] * stride_dOd, there[:, None], 0.0)
        L_i = tl.load(L + h * stride_Lh + n * stride_Ln, there, float("inf"))
        L_i = tl.where(L_i == float("-inf"), float("inf"), L_i)
        D_i = tl.load(D + h * stride_Dh + n * stride_Dn, there, 0.0)
        P_T = tl.exp(tl.dot(K_j, Q_i.T, input_precision="ieee") * scale - L_i[None, :])
        if causal:
            P_T = tl.where(keys[:, None] > n[None, :] + (N_k - N_q), 0.0, P_T)
        dV_j = tl.dot(P_T.to(dO_i.dtype), dO_i, dV_j, input_precision="ieee")
        dS_T = P_T * (tl.dot(V_j, dO_i.T, input_precision="ieee") - D_i[None, :])
        dK_j = tl.dot(dS_T.to(Q_i.dtype), Q_i, dK_j, input_precision="ieee")
    dK_j *= scale
    tl.store(dK + h_kv * stride_dKh + keys[:, None] * stride_dKn + cols * stride_dKd, dK_j, mask=key_ok)
    tl.store(dV + h_kv * stride_dVh + keys[:, None] * stride_dVn + cols * stride_dVd, dV_j, mask=key_ok)
