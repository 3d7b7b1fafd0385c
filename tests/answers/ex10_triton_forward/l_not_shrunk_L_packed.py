# kind: two mistakes
# what: (1) l_i is only added to, the old sum is not multiplied by exp(m_i − m_new); (2) L is stored without its stride_Ln
# shows: (1) several key blocks with a growing maximum; (2) L whose stride along the rows is not 1
"""ex10_triton_forward · FlashAttention-2 as a Triton kernel

Chapter 10 · difficulty 5 of 5 · 40 minutes

The program of ex06_fa2_inner_loop, now for a GPU: program (i, h) computes query block i of head h.

    Q (H, N_q, d)   K (H, N_k, d)   V (H, N_k, d)   ->   O (H, N_q, d), L (H, N_q), the natural-log logsumexp
    any strides, any N_q, N_k; d = 16, 32, 64, ...

- With causal, query n sees the keys up to n + N_k − N_q. A query that sees no key gets O = 0, L = -inf.
- Guards: rows beyond N_q are neither loaded nor stored, keys beyond N_k are neither loaded nor given weight.
- Head and row numbers are turned into 64 bits before they meet a stride (`.to(tl.int64)`).
- O_i, l_i and m_i are float32, tl.dot gets input_precision="ieee". Tiles are at most B_r x B_c.
- Scores lie between −1000 and 1000; scale is any number.
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
    q = tl.load(Q + offs_m[:, None] * stride_Qn + offs_d[None, :] * stride_Qd, mask=offs_m[:, None] < N_q, other=0.0)

    m = tl.full([B_r], float("-inf"), dtype=tl.float32)
    l = tl.zeros([B_r], dtype=tl.float32)
    acc = tl.zeros([B_r, d], dtype=tl.float32)

    end = N_k
    if causal:
        end = tl.minimum(end, (i + 1) * B_r + N_k - N_q)

    for start in range(0, end, B_c):
        offs_n = (start + tl.arange(0, B_c)).to(tl.int64)
        n_mask = offs_n < N_k
        k = tl.load(K + offs_n[:, None] * stride_Kn + offs_d[None, :] * stride_Kd, mask=n_mask[:, None], other=0.0)
        v = tl.load(V + offs_n[:, None] * stride_Vn + offs_d[None, :] * stride_Vd, mask=n_mask[:, None], other=0.0)

        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(n_mask[None, :], s, float("-inf"))
        if causal:
            s = tl.where(offs_m[:, None] + (N_k - N_q) >= offs_n[None, :], s, float("-inf"))

        m_new = tl.maximum(m, tl.max(s, 1))
        m_use = tl.where(m_new > float("-inf"), m_new, 0.0)
        p = tl.exp(s - m_use[:, None])

        acc *= tl.exp(m - m_use)[:, None]                       # rescale the old output
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")
        l += tl.sum(p, 1)                                       # running sum
        m = m_new

    has = l > 0
    den = tl.where(has, l, 1.0)
    out = acc / den[:, None]
    lse = tl.where(has, m + tl.log(den), float("-inf"))
    m_mask = offs_m < N_q
    tl.store(O + offs_m[:, None] * stride_On + offs_d[None, :] * stride_Od, out, mask=m_mask[:, None])
    tl.store(L + offs_m, lse, mask=m_mask)
