# kind: right
# what: B found by doubling and at least 16; padding is 0 when loaded, put to -inf by tl.where for the maximum, and its weight set to 0 by another tl.where
# shows: a B larger than the next power of two is allowed (B ≥ N); 1/sum is multiplied on
"""ex09_row_softmax · softmax of a row in one kernel

Chapter 09 · difficulty 3 of 5 · 30 minutes

One program holds one row: it is loaded once, stays on chip for the maximum, the exponentials and the sum, and is stored once.

    X (M, N)   ->   Y (M, N)        Y[row] = exp(X[row] − max) / sum of exp(X[row] − max)

    element (row, col) of X is at X + row · stride_Xm + col · stride_Xn, and Y has strides of its own

A block has B columns, a power of two with B ≥ N. The padding must not change the result. Compute in float32 whatever X's
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
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    # where my row begins in both tensors
    r = tl.program_id(0).to(tl.int64)
    X_row = X + r * stride_Xm
    Y_row = Y + r * stride_Ym

    c = tl.arange(0, B).to(tl.int64)
    there = c < N
    values = tl.load(X_row + c * stride_Xn, mask=there, other=0.0)
    values = values.to(tl.float32)

    largest = tl.max(tl.where(there, values, float("-inf")), axis=0)
    weights = tl.where(there, tl.exp(tl.where(there, values - largest, 0.0)), 0.0)
    inverse = 1.0 / tl.sum(weights, axis=0)
    result = weights * inverse

    tl.store(Y_row + c * stride_Yn, result.to(Y.dtype.element_ty), mask=there)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    B = 16
    while B < N:
        B *= 2
    grid = (M,)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
