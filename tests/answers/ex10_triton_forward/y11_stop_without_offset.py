# kind: one mistake
# what: with causal the loop ends at key (i + 1) * B_r, as if N_q = N_k; the mask has + N_k - N_q, the loop's end does not
# shows: causal with N_k > N_q: the later keys of each query are never walked

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
    n = (i * B_r + tl.arange(0, B_r)).to(tl.int64)[:, None]         # (B_r, 1)
    c = tl.arange(0, d)[None, :]                                    # (1, d)
    Q_i = tl.load(Q + n * stride_Qn + c * stride_Qd, mask=n < N_q, other=0.0)

    acc = tl.zeros((B_r, d), tl.float32)
    l_i = tl.zeros((B_r, 1), tl.float32)
    m_i = tl.full((B_r, 1), -float("inf"), tl.float32)

    stop = N_k
    if causal:
        stop = tl.minimum(N_k, (i + 1) * B_r)      # nothing to see right of the diagonal

    for start in range(0, stop, B_c):
        k = (start + tl.arange(0, B_c)).to(tl.int64)
        K_j = tl.load(K + k[:, None] * stride_Kn + c * stride_Kd, mask=k[:, None] < N_k, other=0.0)
        V_j = tl.load(V + k[:, None] * stride_Vn + c * stride_Vd, mask=k[:, None] < N_k, other=0.0)

        S = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale
        visible = k[None, :] < N_k
        if causal:
            visible = visible & (k[None, :] <= n + N_k - N_q)
        S = tl.where(visible, S, -float("inf"))

        m_new = tl.maximum(m_i, tl.max(S, 1)[:, None])
        shift = tl.where(m_new > -float("inf"), m_new, 0.0)
        P = tl.exp(S - shift)
        fix = tl.exp(m_i - shift)
        l_i = l_i * fix + tl.sum(P, 1)[:, None]
        acc = acc * fix + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
        m_i = m_new

    empty = l_i == 0
    l_i = tl.where(empty, 1.0, l_i)
    tl.store(O + n * stride_On + c * stride_Od, (acc / l_i).to(O.dtype.element_ty), mask=n < N_q)
    tl.store(L + n * stride_Ln, tl.where(empty, -float("inf"), m_i + tl.log(l_i)), mask=n < N_q)
