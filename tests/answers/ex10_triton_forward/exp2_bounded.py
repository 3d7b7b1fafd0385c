# kind: right
# what: base-2 exponentials, loop bound at the last visible key
"""ex10_triton_forward: my answer."""

import triton
import triton.language as tl


@triton.jit
def fa2_kernel(Q, K, V, O, L,
               stride_Qh, stride_Qn, stride_Qd, stride_Kh, stride_Kn, stride_Kd, stride_Vh, stride_Vn, stride_Vd,
               stride_Oh, stride_On, stride_Od, stride_Lh, stride_Ln, scale, N_q, N_k,
               d: tl.constexpr, causal: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """One query block of one head. Launched with the grid (⌈N_q / B_r⌉, H)."""
    i, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    Q, K, V = Q + h * stride_Qh, K + h * stride_Kh, V + h * stride_Vh
    O, L = O + h * stride_Oh, L + h * stride_Lh
    LOG2E: tl.constexpr = 1.4426950408889634
    r = (i * B_r + tl.arange(0, B_r)).to(tl.int64)
    x = tl.arange(0, d)[None, :]
    stop = N_k
    if causal:
        stop = tl.minimum(N_k, tl.maximum((i + 1) * B_r + N_k - N_q, 0))
    Q_i = tl.load(Q + r[:, None] * stride_Qn + x * stride_Qd, r[:, None] < N_q, 0.0)
    O_i = tl.zeros((B_r, d), tl.float32)
    l_i = tl.zeros((B_r,), tl.float32)
    m_i = tl.zeros((B_r,), tl.float32) - 1e30
    for at in range(0, stop, B_c):
        c = (at + tl.arange(0, B_c)).to(tl.int64)
        K_j = tl.load(K + c[:, None] * stride_Kn + x * stride_Kd, c[:, None] < N_k, 0.0)
        V_j = tl.load(V + c[:, None] * stride_Vn + x * stride_Vd, c[:, None] < N_k, 0.0)
        z = tl.dot(Q_i, K_j.T, input_precision="ieee") * (scale * LOG2E)
        hide = c[None, :] >= N_k
        if causal:
            hide = hide | (c[None, :] > r[:, None] + N_k - N_q)
        m_new = tl.maximum(m_i, tl.max(tl.where(hide, -1e30, z), 1))
        P = tl.where(hide, 0.0, tl.exp2(z - m_new[:, None]))
        fade = tl.exp2(m_i - m_new)
        l_i = l_i * fade + tl.sum(P, 1)
        O_i = tl.dot(P.to(V_j.dtype), V_j, O_i * fade[:, None], input_precision="ieee")
        m_i = m_new
    dead = l_i == 0
    l_i = tl.where(dead, 1.0, l_i)
    tl.store(O + r[:, None] * stride_On + x * stride_Od, (O_i / l_i[:, None]).to(O.dtype.element_ty), r[:, None] < N_q)
    tl.store(L + r * stride_Ln, tl.where(dead, float("-inf"), (m_i + tl.log2(l_i)) / LOG2E), r < N_q)
