# kind: right
# what: a helper for every tile of rows; causal stops after the last key that some row sees; running maximum -inf with a safe copy for the exponents; O_i kept as an average (divided in each step)
# shows: skipped blocks are wholly hidden; the average is rescaled by old sum over new sum, still float32; nothing is stored before the end
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
def block(P, numbers, count, stride_n, stride_d, d: tl.constexpr):
    cols = tl.arange(0, d).to(tl.int64)
    return tl.load(P + numbers[:, None] * stride_n + cols[None, :] * stride_d, mask=(numbers < count)[:, None], other=0.0)


@triton.jit
def fa2_kernel(Q, K, V, O, L,
               stride_Qh, stride_Qn, stride_Qd, stride_Kh, stride_Kn, stride_Kd, stride_Vh, stride_Vn, stride_Vd,
               stride_Oh, stride_On, stride_Od, stride_Lh, stride_Ln, scale, N_q, N_k,
               d: tl.constexpr, causal: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """One query block of one head. Launched with the grid (⌈N_q / B_r⌉, H)."""
    i, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    Q, K, V = Q + h * stride_Qh, K + h * stride_Kh, V + h * stride_Vh
    O, L = O + h * stride_Oh, L + h * stride_Lh
    first = i * B_r
    rows = (first + tl.arange(0, B_r)).to(tl.int64)
    Q_i = block(Q, rows, N_q, stride_Qn, stride_Qd, d)
    minus_inf = float("-inf")

    m_i = tl.full((B_r,), minus_inf, tl.float32)
    l_i = tl.zeros((B_r,), tl.float32)
    O_i = tl.zeros((B_r, d), tl.float32)            # the average so far

    end = N_k
    if causal:
        end = tl.minimum(N_k, first + B_r + N_k - N_q)          # may be negative: no step at all
    for at in range(0, end, B_c):
        keys = (at + tl.arange(0, B_c)).to(tl.int64)
        K_j = block(K, keys, N_k, stride_Kn, stride_Kd, d)
        V_j = block(V, keys, N_k, stride_Vn, stride_Vd, d)
        S_ij = scale * tl.dot(Q_i, K_j.T, input_precision="ieee")
        S_ij = tl.where(keys[None, :] < N_k, S_ij, minus_inf)
        if causal:
            S_ij = tl.where(keys[None, :] - rows[:, None] <= N_k - N_q, S_ij, minus_inf)

        m_new = tl.maximum(m_i, tl.max(S_ij, 1))
        m_safe = tl.where(m_new == minus_inf, 0.0, m_new)
        P_ij = tl.exp(S_ij - m_safe[:, None])
        l_old = l_i * tl.exp(m_i - m_safe)
        l_new = l_old + tl.sum(P_ij, 1)
        divisor = tl.where(l_new > 0.0, l_new, 1.0)
        O_i = O_i * (l_old / divisor)[:, None]
        O_i += tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee") / divisor[:, None]
        m_i, l_i = m_new, l_new

    m_end = tl.where(l_i > 0.0, m_i, 0.0)
    L_i = tl.where(l_i > 0.0, m_end + tl.log(tl.where(l_i > 0.0, l_i, 1.0)), minus_inf)
    cols = tl.arange(0, d).to(tl.int64)
    tl.store(O + rows[:, None] * stride_On + cols[None, :] * stride_Od, O_i.to(O.dtype.element_ty), mask=(rows < N_q)[:, None])
    tl.store(L + rows * stride_Ln, L_i, mask=rows < N_q)
