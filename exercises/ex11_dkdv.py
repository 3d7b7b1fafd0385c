"""ex11_dkdv · dK and dV as a Triton kernel

Chapter 11 · difficulty 5 of 5 · 40 minutes

Program (j, h_kv) owns key block j of key head h_kv. Every query block of every query head that reads this key head adds
to its dK_j and dV_j. With grouped-query attention these are `group` heads: h_kv · group, ..., h_kv · group + group − 1.

    Q, dO (H_q, N_q, d)   K, V (H_kv, N_k, d)   L, D (H_q, N_q)   ->   dK, dV (H_kv, N_k, d)        H_q = H_kv · group
    any strides, any N_q, N_k; d = 16, 32, 64, ...

The arithmetic is that of ex08_dv_tile and ex08_ds_tile. Best make each tile transposed (S_T = K_j Q_iᵀ: keys in rows,
queries in columns): then dV_j and dK_j need no tile turned round.

- With causal, query n sees the keys up to n + N_k − N_q. A query that sees none has L = -inf.
  Query blocks that see no key of the block may be left out, or loaded and masked.
- Rows beyond N_q must not be read, and must add nothing. Keys beyond N_k are taken care of: they
  are loaded as 0, and their rows are not stored.
- Row and head numbers are turned into 64 bits before they meet a stride (`.to(tl.int64)`).
- tl.dot gets input_precision="ieee". S_T and the sums are float32, and scale multiplies S_T, since Q_i · scale may not
  fit 16 bits; P_T and dS_T are cast to the inputs' dtype for tl.dot, or dO_i and Q_i to float32. The factor scale of dK
  may meet dS_T before its cast or the product after it.
- Scores lie between −1000 and 1000; scale is any finite number.
- Q, K, V, dO, dK and dV are float16 or float32, L and D are float32. No size is 0.

Not allowed: larger tiles, a second load of a query block of the same head by one program, a store in each step, the
work of one program done by another, atomics, the finished function from flashlab or solutions/.

Hint: along which axis of S_T do L_i and D_i lie? Write it for group = 1 first.
"""

import triton
import triton.language as tl


@triton.jit
def dkdv_kernel(Q, K, V, dO, L, D, dK, dV,
                stride_Qh, stride_Qn, stride_Qd, stride_Kh, stride_Kn, stride_Kd, stride_Vh, stride_Vn, stride_Vd,
                stride_dOh, stride_dOn, stride_dOd, stride_Lh, stride_Ln, stride_Dh, stride_Dn,
                stride_dKh, stride_dKn, stride_dKd, stride_dVh, stride_dVn, stride_dVd, scale, N_q, N_k,
                group: tl.constexpr, d: tl.constexpr, causal: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """One key block of one key head. Launched with the grid (⌈N_k / B_c⌉, H_kv)."""
    j, h_kv = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    keys = j * B_c + tl.arange(0, B_c)                              # (B_c,)
    cols = tl.arange(0, d)                                          # (d,)
    key_ok = keys[:, None] < N_k                                    # (B_c, 1)
    K_j = tl.load(K + h_kv * stride_Kh + keys[:, None] * stride_Kn + cols * stride_Kd, mask=key_ok, other=0.0)
    V_j = tl.load(V + h_kv * stride_Vh + keys[:, None] * stride_Vn + cols * stride_Vd, mask=key_ok, other=0.0)
    dK_j = tl.zeros((B_c, d), tl.float32)
    dV_j = tl.zeros((B_c, d), tl.float32)
    # your turn: all query blocks of all heads of the group add to dK_j and dV_j
    raise NotImplementedError("ex11_dkdv: all query blocks of all heads of the group add to dK_j and dV_j")
    tl.store(dK + h_kv * stride_dKh + keys[:, None] * stride_dKn + cols * stride_dKd, dK_j, mask=key_ok)
    tl.store(dV + h_kv * stride_dVh + keys[:, None] * stride_dVn + cols * stride_dVd, dV_j, mask=key_ok)
