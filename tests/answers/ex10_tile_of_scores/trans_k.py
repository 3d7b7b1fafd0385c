# kind: right
# what: loads K_j by rows and transposes it
"""ex10_tile_of_scores: my answer."""

import triton
import triton.language as tl


@triton.jit
def scores_kernel(Q, K, S, stride_Qn, stride_Qd, stride_Kn, stride_Kd, stride_Sn, stride_Sm, scale, N_q, N_k,
                  d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """Tile (i, j) of S. stride_Sn is the step from one row of S to the next, stride_Sm from one column to the next."""
    rows = tl.program_id(0).to(tl.int64) * B_r + tl.arange(0, B_r)
    keys = tl.program_id(1).to(tl.int64) * B_c + tl.arange(0, B_c)
    cols = tl.arange(0, d)
    q = tl.load(Q + rows[:, None] * stride_Qn + cols[None, :] * stride_Qd, mask=rows[:, None] < N_q, other=0.0)
    k = tl.load(K + keys[:, None] * stride_Kn + cols[None, :] * stride_Kd, mask=keys[:, None] < N_k, other=0.0)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    tl.store(S + rows[:, None] * stride_Sn + keys[None, :] * stride_Sm, s, mask=(rows[:, None] < N_q) & (keys[None, :] < N_k))


def scores(Q, K, S, scale, B_r, B_c):
    """Fills S with Q Kᵀ · scale."""
    grid = (triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))
    scores_kernel[grid](Q, K, S, *Q.stride(), *K.stride(), *S.stride(), scale, len(Q), len(K), Q.shape[1], B_r, B_c)
