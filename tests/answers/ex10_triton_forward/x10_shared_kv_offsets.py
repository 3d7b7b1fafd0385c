# kind: one mistake
# what: one table of offsets, made of K's strides, serves both K_j and V_j; V_j needs stride_Vn and stride_Vd
# shows: K and V with different strides inside a head, as when one of them is a transposed view

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
    # compute the offsets once, they only move by B_c keys in each step
    tile_q = tl.arange(0, B_r)
    tile_k = tl.arange(0, B_c)
    lane = tl.arange(0, d)
    rows = i.to(tl.int64) * B_r + tile_q
    q_off = rows[:, None] * stride_Qn + lane[None, :] * stride_Qd
    kv_off = tile_k[:, None].to(tl.int64) * stride_Kn + lane[None, :] * stride_Kd
    kv_step = tl.full((), B_c, tl.int64) * stride_Kn

    q = tl.load(Q + q_off, mask=rows[:, None] < N_q, other=0.0)
    o = tl.zeros((B_r, d), tl.float32)
    m = tl.full((B_r,), float("-inf"), tl.float32)
    l = tl.zeros((B_r,), tl.float32)

    for k0 in range(0, N_k, B_c):
        keys = k0 + tile_k
        inside = keys[:, None] < N_k
        k = tl.load(K + kv_off, mask=inside, other=0.0)
        v = tl.load(V + kv_off, mask=inside, other=0.0)
        kv_off += kv_step

        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        ok = keys[None, :] < N_k
        if causal:
            ok = ok & (rows[:, None] + N_k - N_q >= keys[None, :])
        s = tl.where(ok, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        ref = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.where(ok, tl.exp(s - ref[:, None]), 0.0)
        a = tl.exp(m - ref)
        l = l * a + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new

    l_div = tl.where(l > 0, l, 1.0)
    tl.store(O + rows[:, None] * stride_On + lane[None, :] * stride_Od, o / l_div[:, None], mask=rows[:, None] < N_q)
    tl.store(L + rows * stride_Ln, m + tl.log(l_div), mask=rows < N_q)
