# kind: right
# what: K_j is loaded already turned, (d, B_c), masks named
"""ex10_tile_of_scores: my answer."""

import triton
import triton.language as tl


@triton.jit
def scores_kernel(Q, K, S, stride_Qn, stride_Qd, stride_Kn, stride_Kd, stride_Sn, stride_Sm, scale, N_q, N_k,
                  d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """Tile (i, j) of S. stride_Sn is the step from one row of S to the next, stride_Sm from one column to the next."""
    i, j = tl.program_id(0), tl.program_id(1)
    r = i * B_r + tl.arange(0, B_r)
    c = j * B_c + tl.arange(0, B_c)
    x = tl.arange(0, d).to(tl.int64)
    r_ok, c_ok = (r < N_q)[:, None], (c < N_k)[None, :]
    r, c = r.to(tl.int64)[:, None], c.to(tl.int64)[None, :]
    q = tl.load(Q + r * stride_Qn + x[None, :] * stride_Qd, r_ok, 0.0)
    kT = tl.load(K + c * stride_Kn + x[:, None] * stride_Kd, c_ok, 0.0)
    s = tl.dot(q, kT, input_precision="ieee")
    s = s * scale
    tl.store(S + r * stride_Sn + c * stride_Sm, s.to(S.dtype.element_ty), r_ok & c_ok)


def scores(Q, K, S, scale, B_r, B_c):
    """Fills S with Q Kᵀ · scale."""
    grid = -(-Q.shape[0] // B_r), -(-K.shape[0] // B_c)
    scores_kernel[grid](Q, K, S, *Q.stride(), *K.stride(), *S.stride(), scale, len(Q), len(K), Q.shape[1], B_r, B_c)
