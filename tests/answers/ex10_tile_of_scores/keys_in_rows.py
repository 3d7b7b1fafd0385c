# kind: right
# what: makes the tile transposed, K_j times Q_i^T, and stores it through transposed addresses
"""ex10_tile_of_scores · one tile of S as a Triton program"""

import triton
import triton.language as tl


@triton.jit
def scores_kernel(Q, K, S, stride_Qn, stride_Qd, stride_Kn, stride_Kd, stride_Sn, stride_Sm, scale, N_q, N_k,
                  d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """Tile (i, j) of S. Query `row` and key `key` meet in row `row` and column `key` of S."""
    i, j = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    query = (i * B_r + tl.arange(0, B_r))[None, :]
    key = (j * B_c + tl.arange(0, B_c))[:, None]
    col = tl.arange(0, d).to(tl.int64)
    K_j = tl.load(K + key * stride_Kn + col[None, :] * stride_Kd, mask=key < N_k, other=0.0)               # (B_c, d)
    Q_iT = tl.load(Q + query * stride_Qn + col[:, None] * stride_Qd, mask=query < N_q, other=0.0)          # (d, B_r)
    S_T = tl.dot(K_j, Q_iT, input_precision="ieee")                                                        # (B_c, B_r)
    tl.store(S + query * stride_Sn + key * stride_Sm, scale * S_T, mask=(query < N_q) & (key < N_k))


def scores(Q, K, S, scale, B_r, B_c):
    """Fills S with Q Kᵀ · scale."""
    grid = (triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))
    scores_kernel[grid](Q, K, S, *Q.stride(), *K.stride(), *S.stride(), scale, len(Q), len(K), Q.shape[1], B_r, B_c)
