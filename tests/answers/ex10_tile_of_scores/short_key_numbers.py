# kind: one mistake
# what: rows are 64 bits, keys are not
# shows: keys times stride_Kn (or stride_Sm) beyond 2^31: wrapped addresses; else right
"""ex10_tile_of_scores · one tile of S as a Triton program"""

import triton
import triton.language as tl


@triton.jit
def scores_kernel(Q, K, S, stride_Qn, stride_Qd, stride_Kn, stride_Kd, stride_Sn, stride_Sm, scale, N_q, N_k,
                  d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """Tile (i, j) of S. Query `row` and key `key` meet in row `row` and column `key` of S."""
    rows = tl.program_id(0).to(tl.int64) * B_r + tl.arange(0, B_r)
    keys = tl.program_id(1) * B_c + tl.arange(0, B_c)
    cols = tl.arange(0, d)
    row_ok, key_ok = rows < N_q, keys < N_k
    Q_i = tl.load(Q + rows[:, None] * stride_Qn + cols[None, :] * stride_Qd, mask=row_ok[:, None], other=0.0)
    K_j = tl.load(K + keys[:, None] * stride_Kn + cols[None, :] * stride_Kd, mask=key_ok[:, None], other=0.0)
    S_ij = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
    tl.store(S + rows[:, None] * stride_Sn + keys[None, :] * stride_Sm, S_ij, mask=row_ok[:, None] & key_ok[None, :])


def scores(Q, K, S, scale, B_r, B_c):
    """Fills S with Q Kᵀ · scale."""
    grid = (triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))
    scores_kernel[grid](Q, K, S, *Q.stride(), *K.stride(), *S.stride(), scale, len(Q), len(K), Q.shape[1], B_r, B_c)
