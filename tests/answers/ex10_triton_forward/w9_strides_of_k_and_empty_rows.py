# kind: two mistakes
# what: (1) V_j is loaded with stride_Kn and stride_Kd instead of V's own; (2) a query that sees no key is not looked after: -inf minus -inf and 0 / 0
# shows: (1) V with other strides than K (a transposed or sliced V); (2) causal with N_q > N_k: NaN instead of 0 and -inf
"""ex10_triton_forward · FlashAttention-2 as a Triton kernel

Chapter 10 · difficulty 5 of 5 · 40 minutes

The program of ex06_fa2_inner_loop, now for a GPU: program (i, h) computes query block i of head h.

    Q (H, N_q, d)   K (H, N_k, d)   V (H, N_k, d)   ->   O (H, N_q, d), L (H, N_q), the natural-log logsumexp
    any strides, any N_q, N_k; d = 16, 32, 64, ...

- With causal, query n sees the keys up to n + N_k − N_q. A query that sees no key gets O = 0, L = -inf.
  Key blocks that no query of the block sees may be left out, or loaded and masked.
- Guards: rows beyond N_q are neither loaded nor stored, keys beyond N_k are neither loaded nor given weight.
- Head and row numbers are turned into 64 bits before they meet a stride (`.to(tl.int64)`).
- O_i, l_i and m_i are float32, tl.dot gets input_precision="ieee". Tiles are at most B_r x B_c. For the product with V_j, P_ij is
  cast to V's dtype, or V_j to float32.
- Scores lie between −1000 and 1000; scale is any finite number.
- Q, K, V and O are float16 or float32, L is float32. No size is 0.

Not allowed: larger tiles, a second load of Q_i or of a key block by one program, a store in each step, the work of one
program done by another, atomics, the finished function from flashlab or solutions/.

Hint: write it for one key block first, without causal. tl.max(S_ij, 1) and tl.sum(P_ij, 1) work along the rows.
"""

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
    rows = i.to(tl.int64) * B_r + tl.arange(0, B_r)
    cols = tl.arange(0, d)
    off_q = rows[:, None] * stride_Qn + cols[None, :] * stride_Qd
    Q_i = tl.load(Q + off_q, mask=rows[:, None] < N_q, other=0.0)

    m_i = tl.zeros([B_r], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([B_r], dtype=tl.float32)
    O_i = tl.zeros([B_r, d], dtype=tl.float32)

    for j in range(0, tl.cdiv(N_k, B_c)):
        keys = (j * B_c + tl.arange(0, B_c)).to(tl.int64)
        off_kv = keys[:, None] * stride_Kn + cols[None, :] * stride_Kd
        K_j = tl.load(K + off_kv, mask=keys[:, None] < N_k, other=0.0)
        V_j = tl.load(V + off_kv, mask=keys[:, None] < N_k, other=0.0)

        S_ij = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        S_ij = tl.where(keys[None, :] < N_k, S_ij, float("-inf"))
        if causal:
            S_ij = tl.where(rows[:, None] + (N_k - N_q) >= keys[None, :], S_ij, float("-inf"))

        m_new = tl.maximum(m_i, tl.max(S_ij, 1))
        P_ij = tl.exp(S_ij - m_new[:, None])
        alpha = tl.exp(m_i - m_new)
        l_i = l_i * alpha + tl.sum(P_ij, 1)
        O_i = O_i * alpha[:, None]
        O_i += tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")
        m_i = m_new

    O_i = O_i / l_i[:, None]
    tl.store(O + rows[:, None] * stride_On + cols[None, :] * stride_Od, O_i, mask=rows[:, None] < N_q)
    tl.store(L + rows * stride_Ln, m_i + tl.log(l_i), mask=rows < N_q)
