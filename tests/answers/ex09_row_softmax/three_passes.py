# kind: point missed
# what: the row is loaded three times: for the maximum, for the sum, for the result
# shows: numbers are right; X is read three times
"""ex09_row_softmax · softmax of a row in one kernel"""

import triton
import triton.language as tl


@triton.jit
def row_of(X, row, cols, stride_m, stride_n, N):
    return tl.load(X + row * stride_m + cols * stride_n, mask=cols < N, other=-float("inf")).to(tl.float32)


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, B).to(tl.int64)
    m = tl.max(row_of(X, row, cols, stride_Xm, stride_Xn, N), 0)
    total = tl.sum(tl.exp(row_of(X, row, cols, stride_Xm, stride_Xn, N) - m), 0)
    y = tl.exp(row_of(X, row, cols, stride_Xm, stride_Xn, N) - m) / total
    tl.store(Y + row * stride_Ym + cols * stride_Yn, y, mask=cols < N)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    grid = (M,)
    B = triton.next_power_of_2(N)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
