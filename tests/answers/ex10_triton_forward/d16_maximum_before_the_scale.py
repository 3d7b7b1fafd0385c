# kind: one mistake
# what: m_ij = max(qk) · scale, as in the tutorial; with a negative scale that is the smallest score. It should be max(qk · scale)
# shows: negative scale and scores some hundreds apart: the exponentials overflow, O is nan (small scores hide it)
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

    offs_m = (i * B_r + tl.arange(0, B_r)).to(tl.int64)
    offs_d = tl.arange(0, d)
    m_mask = offs_m < N_q
    q = tl.load(Q + offs_m[:, None] * stride_Qn + offs_d[None, :] * stride_Qd, mask=m_mask[:, None], other=0.0)
    m_i = tl.zeros([B_r], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([B_r], dtype=tl.float32)
    acc = tl.zeros([B_r, d], dtype=tl.float32)
    for start_n in range(0, N_k, B_c):
        offs_n = (start_n + tl.arange(0, B_c)).to(tl.int64)
        n_mask = offs_n < N_k
        k = tl.load(K + offs_n[:, None] * stride_Kn + offs_d[None, :] * stride_Kd, mask=n_mask[:, None], other=0.0)
        v = tl.load(V + offs_n[:, None] * stride_Vn + offs_d[None, :] * stride_Vd, mask=n_mask[:, None], other=0.0)
        qk = tl.dot(q, k.T, input_precision="ieee")
        mask = m_mask[:, None] & n_mask[None, :]
        if causal:
            mask = mask & (offs_n[None, :] <= offs_m[:, None] + (N_k - N_q))
        # maximum of the block, scaled; a row without keys keeps -inf
        some = tl.sum(mask.to(tl.int32), 1) > 0
        block_max = tl.where(some, tl.max(tl.where(mask, qk, -float("inf")), 1), 0.0) * scale
        m_ij = tl.where(some, tl.maximum(m_i, block_max), m_i)
        shift = tl.where(m_ij == -float("inf"), 0.0, m_ij)
        p = tl.exp(tl.where(mask, qk * scale - shift[:, None], -float("inf")))
        alpha = tl.exp(m_i - shift)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m_i = m_ij
    l_safe = tl.where(l_i > 0, l_i, 1.0)
    o = acc / l_safe[:, None]
    tl.store(O + offs_m[:, None] * stride_On + offs_d[None, :] * stride_Od, o, mask=m_mask[:, None])
    tl.store(L + offs_m * stride_Ln, tl.where(l_i > 0, m_i + tl.log(l_safe), -float("inf")), mask=m_mask)
