# kind: point missed
# what: two walks over the keys: the first finds m and l (L), the second loads every key block again to make O; a second load of a key block is not allowed, and the running softmax that saves it is the point
# shows: numbers are right; every block of K is loaded twice by each program
"""ex10_triton_forward · FlashAttention-2 as a Triton kernel

Chapter 10 · difficulty 5 of 5 · 40 minutes

The program of ex06_fa2_inner_loop, now for a GPU: program (i, h) computes query block i of head h.

    Q (H, N_q, d)   K (H, N_k, d)   V (H, N_k, d)   ->   O (H, N_q, d), L (H, N_q), the natural-log logsumexp
    any strides, any N_q, N_k; d = 16, 32, 64, ...

- With causal, query n sees the keys up to n + N_k − N_q. A query that sees no key gets O = 0, L = -inf.
- Guards: rows beyond N_q are neither loaded nor stored, keys beyond N_k are neither loaded nor given weight.
- Head and row numbers are turned into 64 bits before they meet a stride (`.to(tl.int64)`).
- O_i, l_i and m_i are float32, tl.dot gets input_precision="ieee". Tiles are at most B_r x B_c.
Scores lie between −1000 and 1000; scale is any number.

Not allowed: larger tiles, a second load of Q_i or of a key block by one program, a store in each step, the work of one
program done by another, atomics, the finished function from flashlab or solutions/.

Hint: write it for one key block first, without causal. tl.max(S_ij, 1) and tl.sum(P_ij, 1) work along the rows.
"""

import triton
import triton.language as tl


@triton.jit
def score_tile(Q_i, K, rows, keys, stride_Kn, stride_Kd, scale, N_q, N_k, d: tl.constexpr, causal: tl.constexpr):
    cols = tl.arange(0, d)
    K_j = tl.load(K + keys.to(tl.int64)[:, None] * stride_Kn + cols[None, :] * stride_Kd, mask=keys[:, None] < N_k, other=0.0)
    S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale
    visible = keys[None, :] < N_k
    if causal:
        visible = visible & (keys[None, :] <= rows[:, None] + (N_k - N_q))
    return tl.where(visible, S_ij, float("-inf"))


@triton.jit
def fa2_kernel(Q, K, V, O, L,
               stride_Qh, stride_Qn, stride_Qd, stride_Kh, stride_Kn, stride_Kd, stride_Vh, stride_Vn, stride_Vd,
               stride_Oh, stride_On, stride_Od, stride_Lh, stride_Ln, scale, N_q, N_k,
               d: tl.constexpr, causal: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """One query block of one head. Launched with the grid (⌈N_q / B_r⌉, H)."""
    i, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    Q, K, V = Q + h * stride_Qh, K + h * stride_Kh, V + h * stride_Vh
    O, L = O + h * stride_Oh, L + h * stride_Lh
    rows = i * B_r + tl.arange(0, B_r)
    cols = tl.arange(0, d)
    row_mask = rows < N_q
    Q_i = tl.load(Q + rows.to(tl.int64)[:, None] * stride_Qn + cols[None, :] * stride_Qd, mask=row_mask[:, None], other=0.0)

    # pass 1: the maximum and the sum of every row
    m_i = tl.full((B_r,), float("-inf"), tl.float32)
    l_i = tl.zeros((B_r,), tl.float32)
    for j in range(0, tl.cdiv(N_k, B_c)):
        keys = j * B_c + tl.arange(0, B_c)
        S_ij = score_tile(Q_i, K, rows, keys, stride_Kn, stride_Kd, scale, N_q, N_k, d, causal)
        m_new = tl.maximum(m_i, tl.max(S_ij, 1))
        m_ok = tl.where(m_new == float("-inf"), 0.0, m_new)
        l_i = l_i * tl.exp(m_i - m_ok) + tl.sum(tl.exp(S_ij - m_ok[:, None]), 1)
        m_i = m_new
    m_ok = tl.where(m_i == float("-inf"), 0.0, m_i)
    l_ok = tl.where(l_i == 0, 1.0, l_i)

    # pass 2: the weights are known now, multiply them with V
    O_i = tl.zeros((B_r, d), tl.float32)
    for j in range(0, tl.cdiv(N_k, B_c)):
        keys = j * B_c + tl.arange(0, B_c)
        S_ij = score_tile(Q_i, K, rows, keys, stride_Kn, stride_Kd, scale, N_q, N_k, d, causal)
        P_ij = tl.exp(S_ij - m_ok[:, None]) / l_ok[:, None]
        V_j = tl.load(V + keys.to(tl.int64)[:, None] * stride_Vn + cols[None, :] * stride_Vd, mask=keys[:, None] < N_k, other=0.0)
        O_i += tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")

    tl.store(O + rows.to(tl.int64)[:, None] * stride_On + cols[None, :] * stride_Od, O_i, mask=row_mask[:, None])
    tl.store(L + rows.to(tl.int64) * stride_Ln, m_i + tl.log(l_ok), mask=row_mask)
