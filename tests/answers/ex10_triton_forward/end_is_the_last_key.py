# kind: one mistake
# what: with causal the end is the last row's own key, not the one after it
# shows: causal, where that key is the first of a key block ((min(N_q, (i+1)·B_r) + N_k - N_q) mod B_c = 1): it is left out; row 0 of N_q = N_k = 1 sees nothing
"""ex10_triton_forward · FlashAttention-2 as a Triton kernel"""

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
    rows = i * B_r + tl.arange(0, B_r)
    cols = tl.arange(0, d)
    row_ok = rows[:, None] < N_q
    Q_i = tl.load(Q + rows[:, None].to(tl.int64) * stride_Qn + cols * stride_Qd, mask=row_ok, other=0.0)
    m_i = tl.full((B_r,), -float("inf"), tl.float32)
    l_i = tl.zeros((B_r,), tl.float32)
    O_i = tl.zeros((B_r, d), tl.float32)
    end = N_k
    if causal:
        last_row = tl.minimum(N_q, (i + 1) * B_r) - 1
        end = last_row + N_k - N_q
    for j in range(0, tl.cdiv(end, B_c)):
        keys = j * B_c + tl.arange(0, B_c)
        key_ok = keys[:, None] < N_k
        K_j = tl.load(K + keys[:, None].to(tl.int64) * stride_Kn + cols * stride_Kd, mask=key_ok, other=0.0)
        V_j = tl.load(V + keys[:, None].to(tl.int64) * stride_Vn + cols * stride_Vd, mask=key_ok, other=0.0)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale
        visible = keys <= rows[:, None] + (N_k - N_q) if causal else keys < N_k
        S_ij = tl.where(visible, S_ij, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(S_ij, 1))
        m_safe = tl.where(m_new == -float("inf"), 0.0, m_new)
        alpha = tl.exp(m_i - m_safe)
        P_ij = tl.exp(S_ij - m_safe[:, None])
        l_i = alpha * l_i + tl.sum(P_ij, 1)
        O_i = alpha[:, None] * O_i + tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")
        m_i = m_new
    l_safe = tl.where(l_i == 0, 1.0, l_i)
    tl.store(O + rows[:, None].to(tl.int64) * stride_On + cols * stride_Od, O_i / l_safe[:, None], mask=row_ok)
    tl.store(L + rows.to(tl.int64) * stride_Ln, m_i + tl.log(l_safe), mask=rows < N_q)
