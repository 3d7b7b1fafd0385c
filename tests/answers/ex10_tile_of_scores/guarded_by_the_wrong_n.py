# kind: one mistake
# what: keys are held against N_q when K_j is loaded
# shows: N_q < N_k: scores of keys from N_q on are 0; N_q > N_k with a ragged tail: reads behind K
"""ex10_tile_of_scores · one tile of S as a Triton program"""

import triton
import triton.language as tl


@triton.jit
def scores_kernel(Q, K, S, stride_Qn, stride_Qd, stride_Kn, stride_Kd, stride_Sn, stride_Sm, scale, N_q, N_k,
                  d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """Tile (i, j) of S. Query `row` and key `key` meet in row `row` and column `key` of S."""
    i, j = tl.program_id(0), tl.program_id(1)
    rows = (i * B_r + tl.arange(0, B_r)).to(tl.int64)
    keys = (j * B_c + tl.arange(0, B_c)).to(tl.int64)
    cols = tl.arange(0, d)
    Q_i = tl.load(Q + rows[:, None] * stride_Qn + cols[None, :] * stride_Qd, mask=rows[:, None] < N_q, other=0.0)
    K_j = tl.load(K + keys[:, None] * stride_Kn + cols[None, :] * stride_Kd, mask=keys[:, None] < N_q, other=0.0)
    S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale
    where = S + rows[:, None] * stride_Sn + keys[None, :] * stride_Sm
    tl.store(where, S_ij, mask=(rows[:, None] < N_q) & (keys[None, :] < N_k))


def scores(Q, K, S, scale, B_r, B_c):
    """Fills S with Q Kᵀ · scale."""
    grid = (triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))
    scores_kernel[grid](Q, K, S, *Q.stride(), *K.stride(), *S.stride(), scale, len(Q), len(K), Q.shape[1], B_r, B_c)
