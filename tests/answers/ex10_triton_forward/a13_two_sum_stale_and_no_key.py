# kind: two mistakes
# what: l_i is not multiplied by alpha when the maximum rises (O_i is); and hidden scores are -1e9 instead of -inf, so a query that sees no key averages the keys of its blocks instead of O = 0, L = -inf
# shows: two key blocks or more with a later, larger maximum: O and L wrong; causal with N_q > N_k: the first queries get numbers instead of 0 and -inf
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

    rows = i.to(tl.int64) * B_r + tl.arange(0, B_r)[:, None]          # (B_r, 1)
    cols = tl.arange(0, d)[None, :]                                   # (1, d)
    q = tl.load(Q + rows * stride_Qn + cols * stride_Qd, mask=rows < N_q, other=0.0)

    m = tl.full((B_r, 1), -float("inf"), tl.float32)
    l = tl.zeros((B_r, 1), tl.float32)
    acc = tl.zeros((B_r, d), tl.float32)

    for first in range(0, N_k, B_c):
        keys = first + tl.arange(0, B_c).to(tl.int64)
        k = tl.load(K + keys[:, None] * stride_Kn + cols * stride_Kd, mask=keys[:, None] < N_k, other=0.0)
        v = tl.load(V + keys[:, None] * stride_Vn + cols * stride_Vd, mask=keys[:, None] < N_k, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        mask = keys[None, :] < N_k
        if causal:
            mask = mask & (keys[None, :] <= rows + N_k - N_q)
        s = tl.where(mask, s, -1e9)
        m_new = tl.maximum(m, tl.max(s, 1)[:, None])
        p = tl.exp(s - m_new)
        acc = acc * tl.exp(m - m_new) + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        l = l + tl.sum(p, 1)[:, None]
        m = m_new

    tl.store(O + rows * stride_On + cols * stride_Od, acc / l, mask=rows < N_q)
    tl.store(L + rows * stride_Ln, m + tl.log(l), mask=rows < N_q)
