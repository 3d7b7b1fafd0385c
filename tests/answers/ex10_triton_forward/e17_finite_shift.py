# kind: right
# what: keys loaded as columns, V_j cast to float32, every key block walked and masked (no early stop), a finite shift for rows without keys
# shows: causal with N_q > N_k (empty rows give 0 and -inf), any scale, any strides; leaving blocks out is optional
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
    last_seen = row + (N_k - N_q) if causal else row * 0 + (N_k - 1)         # the last key each query sees

    Q_i = tl.load(Q + row[:, None] * stride_Qn + col[None, :] * stride_Qd, mask=row_ok[:, None], other=0.0)
    O_i = tl.zeros((B_r, d), tl.float32)
    l_i = tl.zeros((B_r,), tl.float32)
    m_i = tl.full((B_r,), float("-inf"), tl.float32)

    for first in range(0, N_k, B_c):
        key = first + tl.arange(0, B_c).to(tl.int64)
        key_ok = key < N_k
        K_t = tl.load(K + key[None, :] * stride_Kn + col[:, None] * stride_Kd, mask=key_ok[None, :], other=0.0)
        V_j = tl.load(V + key[:, None] * stride_Vn + col[None, :] * stride_Vd, mask=key_ok[:, None], other=0.0)
        S_ij = tl.dot(Q_i, K_t, input_precision="ieee") * scale
        sees = key_ok[None, :] & (key[None, :] <= last_seen[:, None])
        S_ij = tl.where(sees, S_ij, float("-inf"))

        m_new = tl.maximum(m_i, tl.max(S_ij, 1))
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)                 # -inf - (-inf) must not happen
        P_ij = tl.exp(S_ij - shift[:, None])
        shrink = tl.exp(m_i - shift)
        l_i = l_i * shrink + tl.sum(P_ij, 1)
        O_i = tl.dot(P_ij, V_j.to(tl.float32), O_i * shrink[:, None], input_precision="ieee")
        m_i = m_new

    empty = l_i == 0.0
    divisor = tl.where(empty, 1.0, l_i)
    L_i = tl.where(empty, float("-inf"), m_i + tl.log(divisor))
    O_i = O_i / divisor[:, None]
    tl.store(O + row[:, None] * stride_On + col[None, :] * stride_Od, O_i.to(O.dtype.element_ty), mask=row_ok[:, None])
    tl.store(L + row * stride_Ln, L_i, mask=row_ok)
