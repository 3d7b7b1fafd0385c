# kind: one mistake
# what: m_i starts at 0 like every other register; it should start at -inf, or the maximum of very negative scores is never used
# shows: all scores of a query below about -90 (negative scale, long vectors): every exponential is 0, O and L are lost

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
    rows = (i * B_r + tl.arange(0, B_r)).to(tl.int64)
    cols = tl.arange(0, d)
    row_in = rows < N_q
    q = tl.load(Q + rows[:, None] * stride_Qn + cols[None, :] * stride_Qd, mask=row_in[:, None], other=0.0)

    # per-row registers
    acc = tl.zeros((B_r, d), dtype=tl.float32)
    l = tl.zeros((B_r,), dtype=tl.float32)
    m = tl.zeros((B_r,), dtype=tl.float32)

    num_tiles = tl.cdiv(N_k, B_c)
    for t in range(0, num_tiles):
        keys = (t * B_c + tl.arange(0, B_c)).to(tl.int64)
        key_in = keys < N_k
        kT = tl.load(K + cols[:, None] * stride_Kd + keys[None, :] * stride_Kn, mask=key_in[None, :], other=0.0)
        v = tl.load(V + keys[:, None] * stride_Vn + cols[None, :] * stride_Vd, mask=key_in[:, None], other=0.0)

        s = tl.dot(q, kT, input_precision="ieee") * scale
        s = tl.where(key_in[None, :], s, float("-inf"))
        if causal:
            s = tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, float("-inf"))

        m_new = tl.maximum(m, tl.max(s, 1))
        alpha = tl.exp(m - m_new)
        p = tl.exp(s - m_new[:, None])
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new

    empty = l == 0.0
    denom = tl.where(empty, 1.0, l)
    lse = tl.where(empty, float("-inf"), m + tl.log(denom))
    tl.store(O + rows[:, None] * stride_On + cols[None, :] * stride_Od, acc / denom[:, None], mask=row_in[:, None])
    tl.store(L + rows * stride_Ln, lse, mask=row_in)
