# kind: two mistakes
# what: L is stored as exp-sum log without m, and O is not divided
# shows: any
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
    rows = (i * B_r + tl.arange(0, B_r)).to(tl.int64)
    cols = tl.arange(0, d)
    row_ok = rows[:, None] < N_q
    q = tl.load(Q + rows[:, None] * stride_Qn + cols[None, :] * stride_Qd, mask=row_ok, other=0.0)
    acc = tl.zeros((B_r, d), tl.float32)
    l = tl.zeros((B_r,), tl.float32)
    m = tl.full((B_r,), -float("inf"), tl.float32)
    for start in range(0, N_k, B_c):
        keys = (start + tl.arange(0, B_c)).to(tl.int64)
        key_ok = keys[:, None] < N_k
        k = tl.load(K + keys[:, None] * stride_Kn + cols[None, :] * stride_Kd, mask=key_ok, other=0.0)
        v = tl.load(V + keys[:, None] * stride_Vn + cols[None, :] * stride_Vd, mask=key_ok, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = keys[None, :] < N_k
        if causal:
            seen = seen & (keys[None, :] <= rows[:, None] + N_k - N_q)
        s = tl.where(seen, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        safe = tl.where(m_new == -float("inf"), 0.0, m_new)
        alpha = tl.exp(m - safe)
        p = tl.exp(s - safe[:, None])
        l = alpha * l + tl.sum(p, 1)
        acc = alpha[:, None] * acc + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    den = tl.where(l == 0.0, 1.0, l)
    tl.store(O + rows[:, None] * stride_On + cols[None, :] * stride_Od, acc, mask=row_ok)
    tl.store(L + rows * stride_Ln, tl.where(l == 0.0, -float("inf"), tl.log(den)), mask=rows < N_q)
