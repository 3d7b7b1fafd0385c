# kind: right
# what: B is larger than needed (bit_length of N, at least 32); padding is put in after the load, weights by where
"""ex09_row_softmax · softmax of a row in one kernel"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    row = tl.program_id(0).to(tl.int64)
    X_row, Y_row = X + row * stride_Xm, Y + row * stride_Ym
    n = tl.arange(0, B)
    real = n < N
    n = n.to(tl.int64)
    x = tl.load(X_row + n * stride_Xn, real, 0.0).to(tl.float32)
    highest = tl.max(tl.where(real, x, -float("inf")), 0)
    e = tl.where(real, tl.exp(tl.where(real, x - highest, 0.0)), 0.0)
    y = e / tl.sum(e, 0)
    tl.store(Y_row + n * stride_Yn, y.to(Y.dtype.element_ty), real)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    B = max(32, 1 << N.bit_length())
    softmax_kernel[(M,)](X, Y, *X.stride(), *Y.stride(), N, B)
