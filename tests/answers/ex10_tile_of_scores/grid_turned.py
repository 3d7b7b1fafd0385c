# kind: one mistake
# what: the grid is (key tiles, query tiles) while the kernel takes i from program_id(0)
# shows: a different number of tiles down and across: some tiles of S are never made; as many: right
"""ex10_tile_of_scores · one tile of S as a Triton program"""

import triton
import triton.language as tl


@triton.jit
def scores_kernel(Q, K, S, stride_Qn, stride_Qd, stride_Kn, stride_Kd, stride_Sn, stride_Sm, scale, N_q, N_k,
                  d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """Tile (i, j) of S. Query `row` and key `key` meet in row `row` and column `key` of S."""
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1).to(tl.int64)
    rows = i * B_r + tl.arange(0, B_r)
    keys = j * B_c + tl.arange(0, B_c)
    cols = tl.arange(0, d)
    Q_i = tl.load(Q + rows[:, None] * stride_Qn + cols * stride_Qd, mask=(rows < N_q)[:, None], other=0.0)
    K_T = tl.load(K + keys[None, :] * stride_Kn + cols[:, None] * stride_Kd, mask=(keys < N_k)[None, :], other=0.0)
    S_ij = tl.dot(Q_i, K_T, input_precision="ieee") * scale
    tl.store(S + rows[:, None] * stride_Sn + keys * stride_Sm, S_ij, mask=(rows[:, None] < N_q) & (keys < N_k))


def scores(Q, K, S, scale, B_r, B_c):
    """Fills S with Q Kᵀ · scale."""
    grid = (triton.cdiv(len(K), B_c), triton.cdiv(len(Q), B_r))
    scores_kernel[grid](Q, K, S, *Q.stride(), *K.stride(), *S.stride(), scale, len(Q), len(K), Q.shape[1], B_r, B_c)
