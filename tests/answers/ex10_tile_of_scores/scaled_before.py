# kind: one mistake
# what: Q_i is multiplied by scale and rounded to its 16 bits again before the product
# shows: 16-bit Q with a scale that is no power of two (d = 32): an error of a rounding in each q; float32: nothing shows
"""ex10_tile_of_scores · one tile of S as a Triton program"""

import triton
import triton.language as tl


@triton.jit
def scores_kernel(Q, K, S, stride_Qn, stride_Qd, stride_Kn, stride_Kd, stride_Sn, stride_Sm, scale, N_q, N_k,
                  d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """Tile (i, j) of S. Query `row` and key `key` meet in row `row` and column `key` of S."""
    rows = (tl.program_id(0) * B_r + tl.arange(0, B_r)).to(tl.int64)
    keys = (tl.program_id(1) * B_c + tl.arange(0, B_c)).to(tl.int64)
    cols = tl.arange(0, d)
    Q_i = tl.load(Q + rows[:, None] * stride_Qn + cols[None, :] * stride_Qd, mask=rows[:, None] < N_q, other=0.0)
    K_j = tl.load(K + keys[:, None] * stride_Kn + cols[None, :] * stride_Kd, mask=keys[:, None] < N_k, other=0.0)
    Q_i = (Q_i * scale).to(K_j.dtype)                  # d numbers a row instead of B_c
    S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee")
    ok = (rows[:, None] < N_q) & (keys[None, :] < N_k)
    tl.store(S + rows[:, None] * stride_Sn + keys[None, :] * stride_Sm, S_ij, mask=ok)


def scores(Q, K, S, scale, B_r, B_c):
    """Fills S with Q Kᵀ · scale."""
    grid = (triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))
    scores_kernel[grid](Q, K, S, *Q.stride(), *K.stride(), *S.stride(), scale, len(Q), len(K), Q.shape[1], B_r, B_c)
