# kind: right
# what: the kernel cut into small jit functions (load a block, what is visible, one step of the softmax), state passed along
# shows: causal with N_q > N_k, ragged sizes, negative and zero scale, both dtypes: all guarded; one store at the end
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
def load_rows(base, numbers, stride_n, stride_d, N, d: tl.constexpr):
    """A block of rows; 0 where there is no row."""
    col = tl.arange(0, d).to(tl.int64)
    return tl.load(base + numbers[:, None] * stride_n + col[None, :] * stride_d, mask=(numbers < N)[:, None], other=0.0)


@triton.jit
def hide(S_ij, rows, keys, N_q, N_k, causal: tl.constexpr):
    """S_ij with -inf in place of scores that do not count."""
    visible = (keys < N_k)[None, :]
    if causal:
        visible = visible & (keys[None, :] <= rows[:, None] + (N_k - N_q))
    return tl.where(visible, S_ij, -float("inf"))


@triton.jit
def absorb(O_i, l_i, m_i, S_ij, V_j):
    """The state after one more block."""
    m_new = tl.maximum(m_i, tl.max(S_ij, 1))
    anchor = tl.where(m_new == -float("inf"), 0.0, m_new)
    P_ij = tl.exp(S_ij - anchor[:, None])
    shrink = tl.exp(m_i - anchor)
    O_i = O_i * shrink[:, None] + tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")
    l_i = l_i * shrink + tl.sum(P_ij, 1)
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

    rows = i.to(tl.int64) * B_r + tl.arange(0, B_r)
    Q_i = load_rows(Q, rows, stride_Qn, stride_Qd, N_q, d)

    O_i = tl.zeros((B_r, d), tl.float32)
    l_i = tl.zeros((B_r,), tl.float32)
    m_i = tl.full((B_r,), -float("inf"), tl.float32)

    seen = N_k
    if causal:
        seen = tl.minimum(N_k, (i + 1) * B_r + N_k - N_q)       # keys that the last query sees; may be 0 or less
    for first in range(0, seen, B_c):
        keys = first + tl.arange(0, B_c).to(tl.int64)
        K_j = load_rows(K, keys, stride_Kn, stride_Kd, N_k, d)
        V_j = load_rows(V, keys, stride_Vn, stride_Vd, N_k, d)
        S_ij = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        O_i, l_i, m_i = absorb(O_i, l_i, m_i, hide(S_ij, rows, keys, N_q, N_k, causal), V_j)

    blind = l_i == 0.0
    total = tl.where(blind, 1.0, l_i)
    O_i = O_i / total[:, None]
    L_i = tl.where(blind, -float("inf"), m_i + tl.log(total))
    col = tl.arange(0, d).to(tl.int64)
    tl.store(O + rows[:, None] * stride_On + col[None, :] * stride_Od, O_i, mask=(rows < N_q)[:, None])
    tl.store(L + rows * stride_Ln, L_i, mask=rows < N_q)
