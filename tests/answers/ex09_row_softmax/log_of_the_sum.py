# kind: right
# what: the sum goes up into the exponent: exp((x - max) - log sum)
"""ex09_row_softmax · softmax of a row in one kernel"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, B).to(tl.int64)
    exists = cols < N
    x = tl.load(X + (row * stride_Xm + cols * stride_Xn), mask=exists, other=float("-inf")).to(tl.float32)
    x -= tl.max(x, axis=0)
    log_sum = tl.log(tl.sum(tl.exp(x), axis=0))
    tl.store(Y + (row * stride_Ym + cols * stride_Yn), tl.exp(x - log_sum), mask=exists)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    grid = (M,)
    B = triton.next_power_of_2(N)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
