# kind: right
# what: padding by tl.where, power of two by bit_length
"""ex09_row_softmax: my answer."""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, B)
    here = c < N
    x = tl.load(X + r * stride_Xm + c.to(tl.int64) * stride_Xn, mask=here, other=0.0).to(tl.float32)
    top = tl.max(tl.where(here, x, -3.4e38), axis=0)
    e = tl.where(here, tl.exp(x - top), 0.0)
    y = e / tl.sum(e, axis=0)
    tl.store(Y + r * stride_Ym + c.to(tl.int64) * stride_Yn, y.to(Y.dtype.element_ty), mask=here)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    grid = (M,)
    B = 1 << (N - 1).bit_length()
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
