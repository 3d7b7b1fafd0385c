# kind: right
# what: the key blocks are walked from the last to the first, V_j goes to float32, tiles come from a helper; all key blocks are loaded and masked, none left out
# shows: the running softmax does not care for the order; late rows' first blocks are fully hidden then, which the guarded maximum takes; rows that see no key get 0 and -inf
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
def load_rows(base, rows, N, stride_n, stride_d, d: tl.constexpr):
    """Rows `rows` of a matrix of N rows, 0 where there is none."""
    at = base + rows[:, None] * stride_n + tl.arange(0, d)[None, :] * stride_d
    return tl.load(at, mask=(rows < N)[:, None], other=0.0)


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
    Q_i = load_rows(Q, rows, N_q, stride_Qn, stride_Qd, d)

    m_i = tl.full((B_r,), float("-inf"), tl.float32)
    l_i = tl.full((B_r,), 0.0, tl.float32)
    O_i = tl.full((B_r, d), 0.0, tl.float32)

    T_c = tl.cdiv(N_k, B_c)
    for step in range(0, T_c):
        j = T_c - 1 - step
        keys = j * B_c + tl.arange(0, B_c).to(tl.int64)
        K_j = load_rows(K, keys, N_k, stride_Kn, stride_Kd, d)
        V_j = load_rows(V, keys, N_k, stride_Vn, stride_Vd, d).to(tl.float32)

        visible = (keys < N_k)[None, :]
        if causal:
            visible = visible & (keys[None, :] <= rows[:, None] + (N_k - N_q))

        S_ij = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        S_ij = tl.where(visible, S_ij, float("-inf"))

        m_new = tl.maximum(m_i, tl.max(S_ij, 1))
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)       # a row that has seen nothing so far
        alpha = tl.exp(m_i - m_safe)
        P_ij = tl.exp(S_ij - m_safe[:, None])
        l_i = l_i * alpha + tl.sum(P_ij, 1)
        O_i = O_i * alpha[:, None] + tl.dot(P_ij, V_j, input_precision="ieee")
        m_i = m_new

    nothing = l_i == 0.0
    l_safe = tl.where(nothing, 1.0, l_i)
    O_i = O_i / l_safe[:, None]                                     # 0 / 1 where nothing was seen
    L_i = m_i + tl.log(l_safe)                                      # -inf + 0 where nothing was seen

    cols = tl.arange(0, d)
    tl.store(O + rows[:, None] * stride_On + cols[None, :] * stride_Od, O_i.to(O.dtype.element_ty), mask=rows[:, None] < N_q)
    tl.store(L + rows * stride_Ln, L_i, mask=rows < N_q)
