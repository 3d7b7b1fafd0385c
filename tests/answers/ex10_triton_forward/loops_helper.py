# kind: right
# what: one step in a jit helper, called from two loops: blocks that every row sees whole (no mask at all) and then the ones at the edge (masked)
# shows: the first loop holds only blocks that are full and visible to the block's first row; causal and not, N_k < N_q too; every key block is loaded once
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
def one_step(O_i, l_i, m_i, Q_i, K, V, j, stride_Kn, stride_Kd, stride_Vn, stride_Vd, scale, limit, N_k,
             masked: tl.constexpr, d: tl.constexpr, B_c: tl.constexpr):
    """Key block j joins the running softmax. limit (B_r,): the first key that a row does not see."""
    keys = j * B_c + tl.arange(0, B_c)
    cols = tl.arange(0, d)
    K_at = K + keys.to(tl.int64)[:, None] * stride_Kn + cols[None, :] * stride_Kd
    V_at = V + keys.to(tl.int64)[:, None] * stride_Vn + cols[None, :] * stride_Vd
    if masked:
        K_j = tl.load(K_at, mask=keys[:, None] < N_k, other=0.0)
        V_j = tl.load(V_at, mask=keys[:, None] < N_k, other=0.0)
    else:
        K_j = tl.load(K_at)
        V_j = tl.load(V_at)
    S_ij = scale * tl.dot(Q_i, tl.trans(K_j), input_precision="ieee")
    if masked:
        S_ij = tl.where(keys[None, :] < limit[:, None], S_ij, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(S_ij, 1))
    shift = tl.where(m_new > float("-inf"), m_new, 0.0)
    P_ij = tl.exp(S_ij - shift[:, None])
    old = tl.exp(m_i - shift)
    O_i = old[:, None] * O_i + tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")
    l_i = old * l_i + tl.sum(P_ij, 1)
    return O_i, l_i, m_new


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
    here = rows < N_q
    Q_i = tl.load(Q + rows.to(tl.int64)[:, None] * stride_Qn + cols[None, :] * stride_Qd, mask=here[:, None], other=0.0)

    if causal:
        limit = tl.minimum(rows + 1 + N_k - N_q, N_k)
        least = tl.minimum(i * B_r + 1 + N_k - N_q, N_k)
        most = tl.minimum((i + 1) * B_r + N_k - N_q, N_k)
    else:
        limit = tl.zeros((B_r,), tl.int32) + N_k
        least = N_k
        most = N_k
    whole = tl.maximum(least, 0) // B_c
    end = (tl.maximum(most, 0) + B_c - 1) // B_c

    m_i = tl.full((B_r,), float("-inf"), tl.float32)
    l_i = tl.full((B_r,), 0.0, tl.float32)
    O_i = tl.full((B_r, d), 0.0, tl.float32)
    for j in range(0, whole):
        O_i, l_i, m_i = one_step(O_i, l_i, m_i, Q_i, K, V, j, stride_Kn, stride_Kd, stride_Vn, stride_Vd, scale, limit, N_k,
                                 False, d, B_c)
    for j in range(whole, end):
        O_i, l_i, m_i = one_step(O_i, l_i, m_i, Q_i, K, V, j, stride_Kn, stride_Kd, stride_Vn, stride_Vd, scale, limit, N_k,
                                 True, d, B_c)

    seen = l_i > 0
    inverse = tl.where(seen, 1.0 / tl.where(seen, l_i, 1.0), 0.0)
    L_i = tl.where(seen, m_i + tl.log(tl.where(seen, l_i, 1.0)), float("-inf"))
    O_at = O + rows.to(tl.int64)[:, None] * stride_On + cols[None, :] * stride_Od
    tl.store(O_at, (O_i * inverse[:, None]).to(O.dtype.element_ty), mask=here[:, None])
    tl.store(L + rows.to(tl.int64) * stride_Ln, L_i, mask=here)
