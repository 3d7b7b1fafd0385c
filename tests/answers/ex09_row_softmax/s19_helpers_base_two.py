# kind: right
# what: a jit helper for the pointers in int64, exp2 of the shifted row times log2 e, B by doubling
# shows: any strides of X and Y, N not a power of two, float16 cast after the load, padding -inf

"""ex09_row_softmax · softmax of a row in one kernel

Chapter 09 · difficulty 3 of 5 · 30 minutes

One program holds one row: it is loaded once, stays on chip for the maximum, the exponentials and the sum, and is stored once.

    X (M, N)   ->   Y (M, N)        Y[row] = exp(X[row] − max) / sum of exp(X[row] − max)

    element (row, col) of X is at X + row · stride_Xm + col · stride_Xn, and Y has strides of its own

A block has B columns; choose a power of two with B ≥ N. The padding must not change the result. Compute in float32 whatever X's
dtype: cast after the load. Row numbers times strides can pass 2³¹: turn them into 64 bits (`.to(tl.int64)`).
Numbers lie between −1000 and 1000.
X and Y are float16 or float32. No size is 0.

Not allowed: PyTorch in place of the kernel, tensors of your own, tl.softmax, fewer or more programs than rows, a second
load or store of a row, atomics, the finished function from flashlab or solutions/.

Hint: which value can a padded element have that never is the maximum, and whose exponential adds nothing to the sum?
"""

import triton
import triton.language as tl


@triton.jit
def row_pointers(T, row, cols, stride_m, stride_n):
    return T + row.to(tl.int64) * stride_m + cols.to(tl.int64) * stride_n


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    row = tl.program_id(0)
    cols = tl.arange(0, B)
    inside = cols < N
    x = tl.load(row_pointers(X, row, cols, stride_Xm, stride_Xn), mask=inside, other=float("-inf")).to(tl.float32)
    x = x - tl.max(x, axis=0)
    e = tl.exp2(x * 1.4426950408889634)
    y = e / tl.sum(e, axis=0)
    tl.store(row_pointers(Y, row, cols, stride_Ym, stride_Yn), y.to(Y.dtype.element_ty), mask=inside)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    B = 1
    while B < N:
        B *= 2
    grid = (M,)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
