# kind: one mistake
# what: the block is the power of two nearest to N, 2 ** round(log2 N), which may be smaller than N; it has to be rounded up
# shows: N a little above a power of two (5, 9 to 11, 65): the last columns are neither summed nor stored
"""ex09_row_softmax · softmax of a row in one kernel

Chapter 09 · difficulty 3 of 5 · 30 minutes

One program holds one row: it is loaded once, stays on chip for the maximum, the exponentials and the sum, and is stored once.

    X (M, N)   ->   Y (M, N)        Y[row] = exp(X[row] − max) / sum of exp(X[row] − max)

    element (row, col) of X is at X + row · stride_Xm + col · stride_Xn, and Y has strides of its own

A block has B columns, a power of two with B ≥ N. The padding must not change the result. Compute in float32 whatever X's
dtype: cast after the load. Row numbers times strides can pass 2³¹: turn them into 64 bits (`.to(tl.int64)`).
Numbers lie between −1000 and 1000.

Not allowed: PyTorch in place of the kernel, tensors of your own, tl.softmax, fewer or more programs than rows, a second
load or store of a row, atomics, the finished function from flashlab or solutions/.

Hint: which value can a padded element have that never is the maximum, and whose exponential adds nothing to the sum?
"""

import math

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, B)
    keep = cols < N
    offs_x = row * stride_Xm + cols.to(tl.int64) * stride_Xn
    offs_y = row * stride_Ym + cols.to(tl.int64) * stride_Yn
    x = tl.load(X + offs_x, mask=keep, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    s = tl.sum(e, axis=0)
    tl.store(Y + offs_y, e / s, mask=keep)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    B = 2 ** round(math.log2(N))
    grid = lambda meta: (M,)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
