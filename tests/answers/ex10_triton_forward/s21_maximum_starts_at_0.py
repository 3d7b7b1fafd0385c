# kind: one mistake
# what: m_i starts at 0 like l_i and O_i; it should start at -inf, for all scores of a row may be far below 0
# shows: rows whose scores are all very negative (around -200): every exponential is 0, O becomes 0 and L -inf
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

    n = (i * B_r + tl.arange(0, B_r)).to(tl.int64)
    c = tl.arange(0, d)
    n_ok = n < N_q
    q = tl.load(Q + n[:, None] * stride_Qn + c[None, :] * stride_Qd, mask=n_ok[:, None], other=0.0)

    m_i = tl.zeros((B_r,), tl.float32)
    l_i = tl.zeros((B_r,), tl.float32)
    acc = tl.zeros((B_r, d), tl.float32)

    for j in range(tl.cdiv(N_k, B_c)):
        key = (j * B_c + tl.arange(0, B_c)).to(tl.int64)
        key_ok = key < N_k
        k = tl.load(K + key[:, None] * stride_Kn + c[None, :] * stride_Kd, mask=key_ok[:, None], other=0.0)
        v = tl.load(V + key[:, None] * stride_Vn + c[None, :] * stride_Vd, mask=key_ok[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        ok = key_ok[None, :]
        if causal:
            ok = ok & (key[None, :] <= n[:, None] + (N_k - N_q))
        s = tl.where(ok, s, float("-inf"))
        m = tl.maximum(m_i, tl.max(s, 1))
        p = tl.exp(s - m[:, None])
        alpha = tl.exp(m_i - m)
        l_i = alpha * l_i + tl.sum(p, 1)
        acc = alpha[:, None] * acc
        acc = tl.dot(p.to(V.dtype.element_ty), v, acc, input_precision="ieee")
        m_i = m

    seen = l_i > 0
    l_one = tl.where(seen, l_i, 1.0)
    tl.store(O + n[:, None] * stride_On + c[None, :] * stride_Od, (acc / l_one[:, None]).to(O.dtype.element_ty),
             mask=n_ok[:, None])
    tl.store(L + n * stride_Ln, tl.where(seen, m_i + tl.log(l_one), float("-inf")), mask=n_ok)
