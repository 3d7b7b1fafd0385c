# kind: right
# what: running values kept as (B_r, 1) columns, masks as a number added (0 or -inf), K loaded turned round, loop bound from the last query of the block
# shows: rows beyond N_q and keys beyond N_k are neither loaded nor stored; no visible key gives O = 0, L = -inf
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

    row = (i * B_r + tl.arange(0, B_r)).to(tl.int64)[:, None]        # (B_r, 1)
    col = tl.arange(0, d)[None, :]                                    # (1, d)
    row_ok = row < N_q
    q = tl.load(Q + row * stride_Qn + col * stride_Qd, mask=row_ok, other=0.0)

    o = tl.zeros((B_r, d), tl.float32)
    l = tl.zeros((B_r, 1), tl.float32)
    m = tl.full((B_r, 1), float("-inf"), tl.float32)
    stop = N_k
    if causal:
        stop = tl.minimum(N_k, (i + 1) * B_r + N_k - N_q)
    for start in range(0, stop, B_c):
        key = (start + tl.arange(0, B_c)).to(tl.int64)
        key_ok = key < N_k
        kt = tl.load(K + key[None, :] * stride_Kn + tl.arange(0, d)[:, None] * stride_Kd, mask=key_ok[None, :], other=0.0)
        v = tl.load(V + key[:, None] * stride_Vn + col * stride_Vd, mask=key_ok[:, None], other=0.0)
        s = tl.dot(q, kt, input_precision="ieee") * scale
        s += tl.where(key_ok, 0.0, float("-inf"))[None, :]
        if causal:
            s += tl.where(key[None, :] <= row + (N_k - N_q), 0.0, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1, keep_dims=True))
        base = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp(m - base)
        p = tl.exp(s - base)
        l = l * alpha + tl.sum(p, 1, keep_dims=True)
        o = tl.dot(p, v.to(tl.float32), o * alpha, input_precision="ieee")
        m = m_new
    none = l == 0.0
    o = o / tl.where(none, 1.0, l)
    lse = tl.where(none, float("-inf"), m + tl.log(tl.where(none, 1.0, l)))
    tl.store(O + row * stride_On + col * stride_Od, o.to(O.dtype.element_ty), mask=row_ok)
    tl.store(L + row * stride_Ln, lse, mask=row_ok)
