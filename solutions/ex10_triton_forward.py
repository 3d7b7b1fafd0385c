"""ex10_triton_forward · FlashAttention-2 as a Triton kernel

Chapter 10 · difficulty 5 of 5 · 35 minutes

The program of ex06_fa2_inner_loop, now for a GPU: program (i, h) computes query block i of head h.

    Q (H, N_q, d)   K (H, N_k, d)   V (H, N_k, d)   ->   O (H, N_q, d), L (H, N_q), the natural-log logsumexp
    any strides, any N_q, N_k; d = 16, 32, 64, ...

- With causal, query n sees the keys up to n + N_k − N_q. A query that sees no key gets O = 0, L = -inf.
  Key blocks that no query of the block sees may be left out, or loaded and masked.
- Guards: rows beyond N_q are neither loaded nor stored, keys beyond N_k are neither loaded nor given weight.
- Head and row numbers are turned into 64 bits before they meet a stride (`.to(tl.int64)`).
- S_ij, O_i, l_i and m_i are float32; scale multiplies S_ij, since Q_i · scale may not fit 16 bits. tl.dot gets
  input_precision="ieee". Tiles are at most B_r x B_c. For the product with V_j, P_ij is cast to V's dtype, or V_j to
  float32.
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
    # >>> your turn: the whole program
    rows = i.to(tl.int64) * B_r + tl.arange(0, B_r)                 # (B_r,)
    cols = tl.arange(0, d)                                          # (d,)
    Q_i = tl.load(Q + rows[:, None] * stride_Qn + cols * stride_Qd, mask=rows[:, None] < N_q, other=0.0)
    m_i = tl.full((B_r,), -float("inf"), tl.float32)
    l_i = tl.zeros((B_r,), tl.float32)
    O_i = tl.zeros((B_r, d), tl.float32)
    for j in range(0, tl.cdiv(N_k, B_c)):
        keys = j * B_c + tl.arange(0, B_c).to(tl.int64)             # (B_c,)
        K_j = tl.load(K + keys[:, None] * stride_Kn + cols * stride_Kd, mask=keys[:, None] < N_k, other=0.0)
        V_j = tl.load(V + keys[:, None] * stride_Vn + cols * stride_Vd, mask=keys[:, None] < N_k, other=0.0)
        S_ij = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        S_ij = tl.where(keys < N_k, S_ij, -float("inf"))
        if causal:
            S_ij = tl.where(keys <= rows[:, None] + N_k - N_q, S_ij, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(S_ij, 1))                    # (B_r,)
        m_safe = tl.where(m_new == -float("inf"), 0.0, m_new)     # (B_r,)  no visible key yet: -inf − -inf would be NaN
        alpha = tl.exp(m_i - m_safe)                                # (B_r,)
        P_ij = tl.exp(S_ij - m_safe[:, None])                       # (B_r, B_c)
        l_i = alpha * l_i + tl.sum(P_ij, 1)                         # (B_r,)
        O_i = alpha[:, None] * O_i + tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")
        m_i = m_new
    O_i = O_i / tl.where(l_i == 0, 1.0, l_i)[:, None]
    tl.store(O + rows[:, None] * stride_On + cols * stride_Od, O_i, mask=rows[:, None] < N_q)
    tl.store(L + rows * stride_Ln, m_i + tl.log(l_i), mask=rows < N_q)
    # <<<
