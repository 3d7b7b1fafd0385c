# kind: point missed
# what: one program walks all rows in a loop (grid (1,), the number of rows in a global constant)
# shows: numbers right; fewer programs than rows
"""ex09_row_softmax: my answer."""

import triton
import triton.language as tl


ROWS = tl.constexpr(1)


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    cols = tl.arange(0, B).to(tl.int64)
    ok = cols < N
    for row in range(ROWS):
        x = tl.load(X + row * stride_Xm + cols * stride_Xn, mask=ok, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, 0))
        tl.store(Y + row * stride_Ym + cols * stride_Yn, e / tl.sum(e, 0), mask=ok)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    global ROWS
    ROWS = tl.constexpr(M)
    grid, B = (1,), triton.next_power_of_2(N)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
