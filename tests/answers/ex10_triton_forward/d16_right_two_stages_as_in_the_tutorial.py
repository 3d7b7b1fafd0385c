# kind: right
# what: the fused-attention tutorial's two stages (blocks before the diagonal, blocks on it or sticking out), an inner function, exp2
# shows: scores are scaled in float32 before the maximum; rows without keys keep m = -inf, guarded; L goes back to natural logs
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
def _attn_fwd_inner(acc, l_i, m_i, q, K, V, stride_Kn, stride_Kd, stride_Vn, stride_Vd, scale, lo, hi, offs_m, diagonal, N_k,
                    d: tl.constexpr, causal: tl.constexpr, MASKED: tl.constexpr, B_c: tl.constexpr):
    offs_d = tl.arange(0, d)
    for start_n in range(lo, hi, B_c):
        offs_n = (start_n + tl.arange(0, B_c)).to(tl.int64)
        key_ok = offs_n < N_k
        k = tl.load(K + offs_n[None, :] * stride_Kn + offs_d[:, None] * stride_Kd, mask=key_ok[None, :], other=0.0)
        qk = tl.dot(q, k, input_precision="ieee") * scale
        if MASKED:
            seen = key_ok[None, :]
            if causal:
                seen = seen & (offs_n[None, :] <= offs_m[:, None] + diagonal)
            qk = tl.where(seen, qk, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        # a row that has seen no key yet: subtract 0, exp2(-inf) = 0
        shift = tl.where(m_ij == float("-inf"), 0.0, m_ij)
        p = tl.exp2((qk - shift[:, None]) * 1.4426950408889634)
        alpha = tl.exp2((m_i - shift) * 1.4426950408889634)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(V + offs_n[:, None] * stride_Vn + offs_d[None, :] * stride_Vd, mask=key_ok[:, None], other=0.0)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        m_i = m_ij
    return acc, l_i, m_i


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
    row_ok = offs_m < N_q
    m_i = tl.full([B_r], float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([B_r], dtype=tl.float32)
    acc = tl.zeros([B_r, d], dtype=tl.float32)
    q = tl.load(Q + offs_m[:, None] * stride_Qn + offs_d[None, :] * stride_Qd, mask=row_ok[:, None], other=0.0)

    diagonal = N_k - N_q
    # stage 1: whole blocks that every row sees, without a mask. stage 2: the rest up to the last row's last key
    hi = N_k
    full = N_k // B_c * B_c
    if causal:
        hi = tl.maximum(tl.minimum(N_k, (i + 1) * B_r + diagonal), 0)
        full = tl.minimum(full, tl.maximum(i * B_r + diagonal + 1, 0) // B_c * B_c)
    acc, l_i, m_i = _attn_fwd_inner(acc, l_i, m_i, q, K, V, stride_Kn, stride_Kd, stride_Vn, stride_Vd, scale, 0, full,
                                    offs_m, diagonal, N_k, d, causal, False, B_c)
    acc, l_i, m_i = _attn_fwd_inner(acc, l_i, m_i, q, K, V, stride_Kn, stride_Kd, stride_Vn, stride_Vd, scale, full, hi,
                                    offs_m, diagonal, N_k, d, causal, True, B_c)

    # epilogue
    nothing = l_i == 0.0
    safe_l = tl.where(nothing, 1.0, l_i)
    o = acc / safe_l[:, None]
    lse = tl.where(nothing, float("-inf"), m_i + tl.log(safe_l))
    tl.store(L + offs_m * stride_Ln, lse, mask=row_ok)
    tl.store(O + offs_m[:, None] * stride_On + offs_d[None, :] * stride_Od, o.to(O.dtype.element_ty), mask=row_ok[:, None])
