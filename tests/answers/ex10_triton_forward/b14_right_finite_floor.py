# kind: right
# what: no infinities inside the loop: hidden scores are a floor of -1e30 and their weights are set to 0 by the same mask; V_j in float32; keys counted in elements, not in blocks
# shows: within the contract: rows that see no key keep l = 0 and get O = 0, L = -inf at the end; float32 state, one load of each block
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
def address(base, r, c, step_r, step_c):
    return base + r.to(tl.int64)[:, None] * step_r + c.to(tl.int64)[None, :] * step_c


@triton.jit
def fa2_kernel(Q, K, V, O, L,
               stride_Qh, stride_Qn, stride_Qd, stride_Kh, stride_Kn, stride_Kd, stride_Vh, stride_Vn, stride_Vd,
               stride_Oh, stride_On, stride_Od, stride_Lh, stride_Ln, scale, N_q, N_k,
               d: tl.constexpr, causal: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """One query block of one head. Launched with the grid (⌈N_q / B_r⌉, H)."""
    i, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    Q, K, V = Q + h * stride_Qh, K + h * stride_Kh, V + h * stride_Vh
    O, L = O + h * stride_Oh, L + h * stride_Lh

    dims = tl.arange(0, d)
    queries = i * B_r + tl.arange(0, B_r)
    real = queries < N_q
    last_key = queries + (N_k - N_q)              # with causal, the last key that a query sees

    q = tl.load(address(Q, queries, dims, stride_Qn, stride_Qd), mask=real[:, None], other=0.0)

    top = tl.full((B_r,), -1.0e30, tl.float32)
    weight = tl.zeros((B_r,), tl.float32)
    out = tl.zeros((B_r, d), tl.float32)

    stop = N_k
    if causal:
        stop = tl.minimum(N_k, i * B_r + B_r + N_k - N_q)      # may be 0 or less: no round at all
    for k0 in range(0, stop, B_c):
        keys = k0 + tl.arange(0, B_c)
        k = tl.load(address(K, keys, dims, stride_Kn, stride_Kd), mask=(keys < N_k)[:, None], other=0.0)
        v = tl.load(address(V, keys, dims, stride_Vn, stride_Vd), mask=(keys < N_k)[:, None], other=0.0)

        seen = real[:, None] & (keys < N_k)[None, :]
        if causal:
            seen = seen & (keys[None, :] <= last_key[:, None])

        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(seen, s, -1.0e30)
        new_top = tl.maximum(top, tl.max(s, axis=1))
        p = tl.where(seen, tl.exp(s - new_top[:, None]), 0.0)
        shrink = tl.exp(top - new_top)

        weight = weight * shrink + tl.sum(p, axis=1)
        out = out * shrink[:, None]
        out = tl.dot(p, v.to(tl.float32), out, input_precision="ieee")
        top = new_top

    empty = weight == 0.0
    weight = tl.where(empty, 1.0, weight)
    out = out / weight[:, None]
    lse = tl.where(empty, -float("inf"), top + tl.log(weight))
    tl.store(address(O, queries, dims, stride_On, stride_Od), out.to(O.dtype.element_ty), mask=real[:, None])
    tl.store(L + queries.to(tl.int64) * stride_Ln, lse, mask=real)
