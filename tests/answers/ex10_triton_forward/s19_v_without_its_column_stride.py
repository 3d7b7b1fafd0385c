# kind: one mistake
# what: V's pointers are V + k * stride_Vn + c: the stride of the columns is taken to be 1; should be c * stride_Vd
# shows: V whose columns do not lie side by side (a transposed tensor, a tensor cut with a step)
"""ex10_triton_forward · FlashAttention-2 as a Triton kernel

Chapter 10 · difficulty 5 of 5 · 40 minutes

The program of ex06_fa2_inner_loop, now for a GPU: program (i, h) computes query block i of head h.

    Q (H, N_q, d)   K (H, N_k, d)   V (H, N_k, d)   ->   O (H, N_q, d), L (H, N_q), the natural-log logsumexp
    any strides, any N_q, N_k; d = 16, 32, 64, ...

- With causal, query n sees the keys up to n + N_k − N_q. A query that sees no key gets O = 0, L = -inf.
  Key blocks that no query of the block sees may be left out, or loaded and masked.
- Guards: rows beyond N_q are neither loaded nor stored, keys beyond N_k are neither loaded nor given weight.
- Head and row numbers are turned into 64 bits before they meet a stride (`.to(tl.int64)`).
- S_ij, O_i, l_i and m_i are float32; scale multiplies S_ij, since Q_i · scale may not fit 16 bits. tl.dot gets
  input_precision="ieee". Tiles are at most B_r x B_c. For the product with V_j, P_ij is cast to V's dtype, or V_j to float32.
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
    row_mask = rows < N_q
    q = tl.load(Q + rows[:, None] * stride_Qn + cols[None, :] * stride_Qd, mask=row_mask[:, None], other=0.0)
    acc = tl.zeros([B_r, d], dtype=tl.float32)
    l = tl.zeros([B_r], dtype=tl.float32)
    m = tl.zeros([B_r], dtype=tl.float32) - float("inf")
    for start in range(0, N_k, B_c):
        keys = start + tl.arange(0, B_c).to(tl.int64)
        key_mask = keys < N_k
        # K is loaded transposed, (d, B_c)
        kT = tl.load(K + keys[None, :] * stride_Kn + cols[:, None] * stride_Kd, mask=key_mask[None, :], other=0.0)
        s = tl.dot(q, kT, input_precision="ieee") * scale
        s = tl.where(key_mask[None, :], s, float("-inf"))
        if causal:
            s = tl.where(keys[None, :] - N_k <= rows[:, None] - N_q, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        base = tl.where(m_new > float("-inf"), m_new, 0.0)
        p = tl.exp(s - base[:, None])
        alpha = tl.exp(m - base)
        v = tl.load(V + keys[:, None] * stride_Vn + cols[None, :], mask=key_mask[:, None], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        l = l * alpha + tl.sum(p, 1)
        m = m_new
    out = tl.where(l[:, None] > 0, acc / tl.where(l > 0, l, 1.0)[:, None], 0.0)
    tl.store(O + rows[:, None] * stride_On + cols[None, :] * stride_Od, out.to(O.dtype.element_ty), mask=row_mask[:, None])
    tl.store(L + rows * stride_Ln, m + tl.log(tl.where(l > 0, l, 1.0)), mask=row_mask)
