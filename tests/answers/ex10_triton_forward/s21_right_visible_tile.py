# kind: right
# what: one tile "see" holds all masking; weights are tl.where(see, exp(...), 0) instead of exp of -inf; K_j loaded turned
# shows: N_q != N_k both ways, causal rows without keys, one row, negative and zero scale, float16, any strides
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
    row = i.to(tl.int64) * B_r + tl.arange(0, B_r)
    col = tl.arange(0, d).to(tl.int64)
    row_ok = row < N_q
    Q_i = tl.load(Q + row[:, None] * stride_Qn + col[None, :] * stride_Qd, mask=row_ok[:, None], other=0.0)
    top = tl.full((B_r,), float("-inf"), tl.float32)
    weight = tl.zeros((B_r,), tl.float32)
    out = tl.zeros((B_r, d), tl.float32)
    last = row + (N_k - N_q) if causal else row * 0 + N_k - 1        # the last key that each query sees
    for start in range(0, N_k, B_c):
        key = (start + tl.arange(0, B_c)).to(tl.int64)
        key_ok = key < N_k
        K_jT = tl.load(K + key[None, :] * stride_Kn + col[:, None] * stride_Kd, mask=key_ok[None, :], other=0.0)
        V_j = tl.load(V + key[:, None] * stride_Vn + col[None, :] * stride_Vd, mask=key_ok[:, None], other=0.0)
        see = key_ok[None, :] & (key[None, :] <= last[:, None])
        S_ij = tl.where(see, tl.dot(Q_i, K_jT, input_precision="ieee") * scale, float("-inf"))
        new_top = tl.maximum(top, tl.max(S_ij, 1))
        base = tl.where(new_top == float("-inf"), 0.0, new_top)      # no key seen so far: anything finite does
        P_ij = tl.where(see, tl.exp(S_ij - base[:, None]), 0.0)
        fade = tl.exp(top - base)
        weight = weight * fade + tl.sum(P_ij, 1)
        out = tl.dot(P_ij.to(V.dtype.element_ty), V_j, out * fade[:, None], input_precision="ieee")
        top = new_top
    blind = weight == 0.0
    out = out / tl.where(blind, 1.0, weight)[:, None]
    logsum = tl.where(blind, float("-inf"), top + tl.log(tl.where(blind, 1.0, weight)))
    tl.store(O + row[:, None] * stride_On + col[None, :] * stride_Od, out.to(O.dtype.element_ty), mask=row_ok[:, None])
    tl.store(L + row * stride_Ln, logsum, mask=row_ok)
