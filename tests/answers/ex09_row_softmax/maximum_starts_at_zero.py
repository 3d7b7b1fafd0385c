# kind: one mistake
# what: the maximum is taken together with 0, as if it had been initialised so
# shows: rows whose elements are all below about -88: the exponentials vanish, 0/0 = NaN, or lose digits
"""ex09_row_softmax · softmax of a row in one kernel"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, B)
    inside = cols < N
    x = tl.load(X + row * stride_Xm + cols * stride_Xn, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.maximum(0.0, tl.max(x, 0))
    numerator = tl.exp(x - top)
    tl.store(Y + row * stride_Ym + cols * stride_Yn, numerator / tl.sum(numerator, 0), mask=inside)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    grid = (M,)
    B = triton.next_power_of_2(N)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
