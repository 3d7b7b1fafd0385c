# kind: one mistake
# what: the padding is -1000, the lowest number that the stub allows, not -inf
# shows: rows whose numbers all lie near -1000
"""ex09_row_softmax · softmax of a row in one kernel"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, B)
    x = tl.load(X + row * stride_Xm + cols * stride_Xn, mask=cols < N, other=-1000.0).to(tl.float32)
    x = tl.exp(x - tl.max(x, 0))
    y = x / tl.sum(x, 0)
    tl.store(Y + row * stride_Ym + cols * stride_Yn, y, mask=cols < N)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    grid = (M,)
    B = triton.next_power_of_2(N)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
