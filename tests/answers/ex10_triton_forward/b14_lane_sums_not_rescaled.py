# kind: one mistake
# what: as with SIMD, a partial sum for each lane (B_r, B_c) is kept and added up after the loop; O_i is rescaled when the maximum moves, the partial sums are not; they need the same factor
# shows: N_k > B_c with a maximum that grows in a later block: l_i is too large, O too small and L too large
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

    r = (i * B_r + tl.arange(0, B_r)).to(tl.int64)[:, None]
    c = tl.arange(0, d)[None, :]
    q = tl.load(Q + r * stride_Qn + c * stride_Qd, mask=r < N_q, other=0.0)

    lanes = tl.zeros((B_r, B_c), tl.float32)             # one running sum for each place in the tile
    acc = tl.zeros((B_r, d), tl.float32)
    m = tl.full((B_r, 1), -float("inf"), tl.float32)

    n_blocks = tl.cdiv(N_k, B_c)
    for j in range(0, n_blocks):
        k_no = (j * B_c + tl.arange(0, B_c)).to(tl.int64)
        exists = k_no[:, None] < N_k
        k = tl.load(K + k_no[:, None] * stride_Kn + c * stride_Kd, mask=exists, other=0.0)
        v = tl.load(V + k_no[:, None] * stride_Vn + c * stride_Vd, mask=exists, other=0.0)

        s = tl.dot(q, k.T, input_precision="ieee") * scale
        ok = (k_no < N_k)[None, :]
        if causal:
            ok = ok & (k_no[None, :] <= r + (N_k - N_q))
        s = tl.where(ok, s, -float("inf"))

        m_next = tl.maximum(m, tl.max(s, 1, keep_dims=True))
        m_ref = tl.where(m_next > -float("inf"), m_next, 0.0)
        p = tl.exp(s - m_ref)
        lanes += p
        acc = acc * tl.exp(m - m_ref) + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_next

    total = tl.sum(lanes, 1, keep_dims=True)             # reduce the lanes once, at the end
    total = tl.where(total > 0.0, total, 1.0)
    tl.store(O + r * stride_On + c * stride_Od, (acc / total).to(O.dtype.element_ty), mask=r < N_q)
    tl.store(L + r * stride_Ln, m + tl.log(total), mask=r < N_q)
