# kind: right
# what: scores in units of log2 (scale · log2 e, exp2), L turned back by ln 2 at the end; a while loop with a running block start; K read transposed; a row without keys gets 0 in place of its maximum
# shows: scale's sign stays in the scores before the maximum is taken; bounded by causal's last visible key; stored once
"""ex10_triton_forward · FlashAttention-2 as a Triton kernel

Chapter 10 · difficulty 5 of 5 · 40 minutes

The program of ex06_fa2_inner_loop, now for a GPU: program (i, h) computes query block i of head h.

    Q (H, N_q, d)   K (H, N_k, d)   V (H, N_k, d)   ->   O (H, N_q, d), L (H, N_q), the natural-log logsumexp
    any strides, any N_q, N_k; d = 16, 32, 64, ...

- With causal, query n sees the keys up to n + N_k − N_q. A query that sees no key gets O = 0, L = -inf.
- Guards: rows beyond N_q are neither loaded nor stored, keys beyond N_k are neither loaded nor given weight.
- Head and row numbers are turned into 64 bits before they meet a stride (`.to(tl.int64)`).
- O_i, l_i and m_i are float32, tl.dot gets input_precision="ieee". Tiles are at most B_r x B_c.
Scores lie between −1000 and 1000; scale is any number.

Not allowed: larger tiles, a second load of Q_i or of a key block by one program, a store in each step, the work of one
program done by another, atomics, the finished function from flashlab or solutions/.

Hint: write it for one key block first, without causal. tl.max(S_ij, 1) and tl.sum(P_ij, 1) work along the rows.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def fa2_kernel(Q, K, V, O, L,
               stride_Qh, stride_Qn, stride_Qd, stride_Kh, stride_Kn, stride_Kd, stride_Vh, stride_Vn, stride_Vd,
               stride_Oh, stride_On, stride_Od, stride_Lh, stride_Ln, scale, N_q, N_k,
               d: tl.constexpr, causal: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """One query block of one head. Launched with the grid (⌈N_q / B_r⌉, H)."""
    i, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    Q, K, V = Q + h * stride_Qh, K + h * stride_Kh, V + h * stride_Vh
    O, L = O + h * stride_Oh, L + h * stride_Lh
    NEG = -float("inf")
    row = i * B_r + tl.arange(0, B_r)
    row64 = row.to(tl.int64)
    e = tl.arange(0, d)
    row_ok = row < N_q
    q = tl.load(Q + row64[:, None] * stride_Qn + e[None, :] * stride_Qd, mask=row_ok[:, None], other=0.0)

    last = row + (N_k - N_q) if causal else tl.full((B_r,), 0, tl.int32) + (N_k - 1)     # last key each row sees
    last = tl.minimum(last, N_k - 1)
    stop = tl.max(last, 0) + 1

    top = tl.full((B_r,), NEG, tl.float32)
    den = tl.zeros((B_r,), tl.float32)
    acc = tl.zeros((B_r, d), tl.float32)
    start = 0
    while start < stop:
        key = start + tl.arange(0, B_c)
        key64 = key.to(tl.int64)
        k_t = tl.load(K + key64[None, :] * stride_Kn + e[:, None] * stride_Kd, mask=key[None, :] < N_k, other=0.0)
        v = tl.load(V + key64[:, None] * stride_Vn + e[None, :] * stride_Vd, mask=key[:, None] < N_k, other=0.0)
        s = tl.dot(q, k_t, input_precision="ieee") * (scale * LOG2E)
        s = tl.where(key[None, :] <= last[:, None], s, NEG)
        new_top = tl.maximum(top, tl.max(s, 1))
        base = tl.where(new_top == NEG, 0.0, new_top)
        w = tl.exp2(s - base[:, None])
        shrink = tl.exp2(top - base)
        den = den * shrink + tl.sum(w, 1)
        acc = acc * shrink[:, None]
        acc += tl.dot(w.to(v.dtype), v, input_precision="ieee")
        top = new_top
        start += B_c

    empty = den == 0
    den = tl.where(empty, 1.0, den)
    tl.store(O + row64[:, None] * stride_On + e[None, :] * stride_Od, acc / den[:, None], mask=row_ok[:, None])
    tl.store(L + row64 * stride_Ln, (top + tl.log2(den)) * LN2, mask=row_ok)
