"""ex09_row_softmax · softmax of a row in one kernel

Chapter 09 · difficulty 3 of 5 · 25 minutes

One program holds one row: it is loaded once, stays on chip for the maximum, the exponentials and the sum, and is stored
once.

    X (M, N)   ->   Y (M, N)        Y[row] = exp(X[row] − max) / sum of exp(X[row] − max)

    element (row, col) of X is at X + row · stride_Xm + col · stride_Xn, and Y has strides of its own

A block has B columns; choose a power of two with B ≥ N. The padding must not change the result. Compute in float32
whatever X's dtype: cast after the load. Row numbers times strides can pass 2³¹: turn them into 64 bits
(`.to(tl.int64)`). Numbers lie between −1000 and 1000. X is float16 or float32, and so is Y, which may have
another dtype than X. No size is 0.

Not allowed: PyTorch in place of the kernel, tensors of your own, tl.softmax, fewer or more programs than rows, a second
load or store of a row, atomics, the finished function from flashlab or solutions/.

Hint: which value can a padded element have that never is the maximum, and whose exponential adds nothing to the sum?
"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    # your turn: load the row, its softmax in float32, store it
    raise NotImplementedError("ex09_row_softmax: load the row, its softmax in float32, store it")


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    # your turn: the grid, and B for N columns
    raise NotImplementedError("ex09_row_softmax: the grid, and B for N columns")
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
