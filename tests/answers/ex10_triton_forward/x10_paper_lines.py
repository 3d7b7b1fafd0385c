# kind: right
# what: FA2's Algorithm 1 ported line by line with its line numbers in comments; V_j goes to float32 for the product
# shows: -inf maxima are replaced by 0 before any subtraction, masks on both edges, loop ends at the last key that the block sees

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
    rows = i.to(tl.int64) * B_r + tl.arange(0, B_r)
    cols = tl.arange(0, d).to(tl.int64)
    row_ok = rows < N_q

    # line 4: load Q_i from HBM to on-chip SRAM
    Q_i = tl.load(Q + rows[:, None] * stride_Qn + cols[None, :] * stride_Qd, mask=row_ok[:, None], other=0.0)

    # line 5: O_i = 0, l_i = 0, m_i = -inf
    O_i = tl.zeros((B_r, d), tl.float32)
    l_i = tl.zeros((B_r,), tl.float32)
    m_i = tl.full((B_r,), float("-inf"), tl.float32)

    # the last query of the block that exists sees the most keys
    seen = N_k
    if causal:
        last = tl.minimum((i + 1) * B_r, N_q) - 1
        seen = tl.maximum(tl.minimum(last + N_k - N_q + 1, N_k), 0)

    # line 6: for 1 <= j <= T_c
    for start in range(0, seen, B_c):
        keys = start + tl.arange(0, B_c).to(tl.int64)
        key_ok = keys < N_k
        # line 7: load K_j, V_j
        K_j = tl.load(K + keys[:, None] * stride_Kn + cols[None, :] * stride_Kd, mask=key_ok[:, None], other=0.0)
        V_j = tl.load(V + keys[:, None] * stride_Vn + cols[None, :] * stride_Vd, mask=key_ok[:, None], other=0.0)
        # line 8: S_ij = Q_i K_j^T
        S_ij = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        sees = key_ok[None, :]
        if causal:
            sees = sees & (keys[None, :] <= rows[:, None] + (N_k - N_q))
        S_ij = tl.where(sees, S_ij, float("-inf"))
        # line 9: m_i^(j), P_ij, l_i^(j)
        m_new = tl.maximum(m_i, tl.max(S_ij, 1))
        m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)
        P_ij = tl.exp(S_ij - m_sub[:, None])
        shrink = tl.exp(m_i - m_sub)
        l_i = shrink * l_i + tl.sum(P_ij, 1)
        # line 10: O_i^(j), with the factor itself and not its inverse
        O_i = shrink[:, None] * O_i + tl.dot(P_ij, V_j.to(tl.float32), input_precision="ieee")
        m_i = m_new

    # lines 12 and 13: O_i = diag(l_i)^-1 O_i, L_i = m_i + log(l_i)
    nobody = l_i == 0.0
    l_safe = tl.where(nobody, 1.0, l_i)
    O_i = O_i / l_safe[:, None]
    L_i = tl.where(nobody, float("-inf"), m_i + tl.log(l_safe))

    # lines 14 and 15: write to HBM
    tl.store(O + rows[:, None] * stride_On + cols[None, :] * stride_Od, O_i.to(O.dtype.element_ty), mask=row_ok[:, None])
    tl.store(L + rows * stride_Ln, L_i, mask=row_ok)
