# kind: one mistake
# what: Y is addressed with the strides of X
# shows: Y laid out differently from X
"""ex09_row_softmax: my answer."""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, B).to(tl.int64)
    ok = cols < N
    x = tl.load(X + row * stride_Xm + cols * stride_Xn, mask=ok, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(Y + row * stride_Xm + cols * stride_Xn, e / tl.sum(e, 0), mask=ok)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    grid, B = (M,), triton.next_power_of_2(N)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
