# kind: right
# what: walks the key blocks from the last to the first, in powers of 2; hidden weights by where
"""ex10_triton_forward · FlashAttention-2 as a Triton kernel"""

import triton
import triton.language as tl


LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
NONE = tl.constexpr(-float("inf"))


@triton.jit
def tile(T, numbers, cols, stride_n, stride_d, N):
    at = T + numbers.to(tl.int64)[:, None] * stride_n + cols.to(tl.int64)[None, :] * stride_d
    return tl.load(at, mask=(numbers < N)[:, None], other=0.0)


@triton.jit
def fa2_kernel(Q, K, V, O, L,
               stride_Qh, stride_Qn, stride_Qd, stride_Kh, stride_Kn, stride_Kd, stride_Vh, stride_Vn, stride_Vd,
               stride_Oh, stride_On, stride_Od, stride_Lh, stride_Ln, scale, N_q, N_k,
               d: tl.constexpr, causal: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """One query block of one head. Launched with the grid (⌈N_q / B_r⌉, H)."""
    i, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    Q, K, V = Q + h * stride_Qh, K + h * stride_Kh, V + h * stride_Vh
    O, L = O + h * stride_Oh, L + h * stride_Lh

    q = i * B_r + tl.arange(0, B_r)
    cols = tl.arange(0, d)
    Q_i = tile(Q, q, cols, stride_Qn, stride_Qd, N_q)
    last_seen = q + (N_k - N_q) if causal else tl.full((B_r,), N_k - 1, tl.int32)
    last_seen = tl.minimum(last_seen, N_k - 1)

    biggest = tl.full((B_r,), NONE, tl.float32)
    weight = tl.zeros((B_r,), tl.float32)
    out = tl.zeros((B_r, d), tl.float32)
    blocks = tl.cdiv(tl.maximum(tl.max(last_seen, 0) + 1, 0), B_c)
    for step in range(0, blocks):
        k = (blocks - 1 - step) * B_c + tl.arange(0, B_c)
        K_j = tile(K, k, cols, stride_Kn, stride_Kd, N_k)
        V_j = tile(V, k, cols, stride_Vn, stride_Vd, N_k)
        seen = k[None, :] <= last_seen[:, None]
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * (scale * LOG2_E)
        now = tl.maximum(biggest, tl.max(tl.where(seen, S, NONE), 1))
        P = tl.where(seen, tl.exp2(S - now[:, None]), 0.0)
        shrink = tl.where(now == biggest, 1.0, tl.exp2(biggest - now))
        weight = weight * shrink + tl.sum(P, 1)
        out *= shrink[:, None]
        out = tl.dot(P.to(V_j.dtype), V_j, out, input_precision="ieee")
        biggest = now

    empty = biggest == NONE
    weight = tl.where(empty, 1.0, weight)
    n = q.to(tl.int64)
    tl.store(O + n[:, None] * stride_On + cols[None, :] * stride_Od, (out / weight[:, None]).to(O.dtype.element_ty), mask=(q < N_q)[:, None])
    tl.store(L + n * stride_Ln, tl.where(empty, NONE, biggest * LN_2 + tl.log(weight)), mask=q < N_q)
