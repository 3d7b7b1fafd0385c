# kind: right
# what: the loop in base 2 with helper functions; back to the natural logarithm for L at the end; key blocks above the diagonal left out
# shows: contract kept: masks, bottom-right causal, empty rows give O = 0 and L = -inf, any sign of scale, 64-bit rows, one store
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
def rows_of(base, lines, count, cols, stride_line, stride_col):
    """A tile of whole rows; rows that do not exist are 0."""
    return tl.load(base + lines[:, None] * stride_line + cols[None, :] * stride_col,
                   mask=(lines < count)[:, None], other=0.0)


@triton.jit
def absorb(m, l, acc, x, v):
    """One block of base-2 scores x and values v into the state (m, l, acc)."""
    top = tl.maximum(m, tl.max(x, 1))
    ref = tl.where(top == -float("inf"), 0.0, top)     # a row without keys so far: any finite number will do
    fade = tl.exp2(m - ref)
    p = tl.exp2(x - ref[:, None])
    l = l * fade + tl.sum(p, 1)
    acc = acc * fade[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return top, l, acc


@triton.jit
def fa2_kernel(Q, K, V, O, L,
               stride_Qh, stride_Qn, stride_Qd, stride_Kh, stride_Kn, stride_Kd, stride_Vh, stride_Vn, stride_Vd,
               stride_Oh, stride_On, stride_Od, stride_Lh, stride_Ln, scale, N_q, N_k,
               d: tl.constexpr, causal: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """One query block of one head. Launched with the grid (⌈N_q / B_r⌉, H)."""
    i, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    Q, K, V = Q + h * stride_Qh, K + h * stride_Kh, V + h * stride_Vh
    O, L = O + h * stride_Oh, L + h * stride_Lh
    lines = i.to(tl.int64) * B_r + tl.arange(0, B_r)
    cols = tl.arange(0, d).to(tl.int64)
    q = rows_of(Q, lines, N_q, cols, stride_Qn, stride_Qd)

    m = tl.full((B_r,), -float("inf"), tl.float32)
    l = tl.zeros((B_r,), tl.float32)
    acc = tl.zeros((B_r, d), tl.float32)

    reach = N_k                              # how many keys the last query of the block can see at most
    if causal:
        reach = tl.minimum(N_k, (i + 1) * B_r + N_k - N_q)
    for start in range(0, reach, B_c):
        keys = start + tl.arange(0, B_c).to(tl.int64)
        k = rows_of(K, keys, N_k, cols, stride_Kn, stride_Kd)
        v = rows_of(V, keys, N_k, cols, stride_Vn, stride_Vd)
        x = tl.dot(q, tl.trans(k), input_precision="ieee") * scale * 1.4426950408889634
        seen = (keys < N_k)[None, :]
        if causal:
            seen = seen & (keys[None, :] - lines[:, None] <= N_k - N_q)
        m, l, acc = absorb(m, l, acc, tl.where(seen, x, -float("inf")), v)

    empty = l == 0.0
    out = acc / tl.where(empty, 1.0, l)[:, None]
    lse = tl.where(empty, -float("inf"), (m + tl.log2(tl.where(empty, 1.0, l))) * 0.6931471805599453)
    exists = lines < N_q
    tl.store(O + lines[:, None] * stride_On + cols[None, :] * stride_Od, out, mask=exists[:, None])
    tl.store(L + lines * stride_Ln, lse, mask=exists)
