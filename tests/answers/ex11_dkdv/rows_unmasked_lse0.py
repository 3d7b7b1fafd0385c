# kind: one mistake
# what: the mask on the loads of L and D is missing: rows beyond N_q are read
# shows: N_q no multiple of B_r: memory outside is read
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
    for g in range(group):
        h = h_kv * group + g
        for start in range(0, N_q, B_r):
            rows = (start + tl.arange(0, B_r)).to(tl.int64)
            ok = rows < N_q
            q = tl.load(Q + h * stride_Qh + rows[:, None] * stride_Qn + cols * stride_Qd, mask=ok[:, None], other=0.0)
            do = tl.load(dO + h * stride_dOh + rows[:, None] * stride_dOn + cols * stride_dOd, mask=ok[:, None], other=0.0)
            lse = tl.load(L + h * stride_Lh + rows * stride_Ln)
            delta = tl.load(D + h * stride_Dh + rows * stride_Dn)
            S_T = tl.dot(K_j, tl.trans(q), input_precision="ieee") * scale
            seen = key_ok & ok[None, :] & (lse != -float("inf"))[None, :]
            if causal:
                seen = seen & (keys[:, None] <= rows[None, :] + N_k - N_q)
            P_T = tl.where(seen, tl.exp(tl.where(seen, S_T - lse[None, :], 0.0)), 0.0)
            dV_j += tl.dot(P_T.to(do.dtype), do, input_precision="ieee")
            dP_T = tl.dot(V_j, tl.trans(do), input_precision="ieee")
            dS_T = P_T * (dP_T - delta[None, :])
            dK_j += tl.dot(dS_T.to(q.dtype), q, input_precision="ieee") * scale
    tl.store(dK + h_kv * stride_dKh + keys[:, None] * stride_dKn + cols * stride_dKd, dK_j, mask=key_ok)
    tl.store(dV + h_kv * stride_dVh + keys[:, None] * stride_dVn + cols * stride_dVd, dV_j, mask=key_ok)
