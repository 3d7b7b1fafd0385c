# kind: one mistake
# what: the row is stored with X's strides
# shows: Y whose strides are not X's (X transposed, or Y with gaps); alike strides hide it
"""ex09_row_softmax · softmax of a row in one kernel"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, B)
    at = row * stride_Xm + cols * stride_Xn
    x = tl.load(X + at, mask=cols < N, other=-float("inf")).to(tl.float32)
    x = tl.exp(x - tl.max(x, 0))
    tl.store(Y + at, x / tl.sum(x, 0), mask=cols < N)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    grid = (M,)
    B = triton.next_power_of_2(N)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
