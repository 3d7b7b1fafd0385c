# kind: right
# what: tiles of keys turned round at the load, 2^x inside with log2(e) on the scores after the scale, the maximum starts from the lowest finite number, one multiplication by 1/l at the end
# shows: weights of hidden keys are set to 0 by a select; L is turned back into base e; scale of any sign
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

    r = (i.to(tl.int64) * B_r + tl.arange(0, B_r))[:, None]            # (B_r, 1)
    c = tl.arange(0, d).to(tl.int64)[None, :]                          # (1, d)
    c_down = tl.arange(0, d).to(tl.int64)[:, None]                     # (d, 1)
    last = tl.minimum((i + 1) * B_r, N_q) - 1                          # my last query
    visible = tl.maximum(0, last + N_k - N_q + 1) if causal else N_k   # how many keys it sees
    shift = N_k - N_q

    q = tl.load(Q + r * stride_Qn + c * stride_Qd, mask=r < N_q, other=0.0)
    top = tl.full((B_r,), -3.0e38, tl.float32)
    total = tl.zeros((B_r,), tl.float32)
    acc = tl.zeros((B_r, d), tl.float32)

    for t in range(0, tl.cdiv(visible, B_c)):
        k = t * B_c + tl.arange(0, B_c).to(tl.int64)
        k_row, k_col = k[None, :], k[:, None]
        kt = tl.load(K + k_row * stride_Kn + c_down * stride_Kd, mask=k_row < N_k, other=0.0)      # (d, B_c)
        v = tl.load(V + k_col * stride_Vn + c * stride_Vd, mask=k_col < N_k, other=0.0)            # (B_c, d)
        s = tl.dot(q, kt, input_precision="ieee") * scale * 1.4426950408889634
        ok = (k_row < N_k) & (k_row <= r + shift) if causal else (k_row < N_k) & (r >= 0)
        new_top = tl.maximum(top, tl.max(tl.where(ok, s, -3.0e38), 1))
        p = tl.where(ok, tl.exp2(s - new_top[:, None]), 0.0)
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None] + tl.dot(p, v.to(tl.float32), input_precision="ieee")
        top = new_top

    some = total > 0.0
    acc = acc * (1.0 / tl.where(some, total, 1.0))[:, None]
    lse = tl.where(some, (top + tl.log2(tl.where(some, total, 1.0))) * 0.6931471805599453, float("-inf"))
    tl.store(O + r * stride_On + c * stride_Od, acc.to(O.dtype.element_ty), mask=r < N_q)
    row = i.to(tl.int64) * B_r + tl.arange(0, B_r)
    tl.store(L + row * stride_Ln, lse, mask=row < N_q)
