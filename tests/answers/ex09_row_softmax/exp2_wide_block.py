# kind: right
# what: base 2, a helper for the arithmetic, a block of at least 64 columns, the reciprocal of the sum multiplied
# shows: within the contract: B is a power of two >= N, padding is -inf, float32 after the load, one load and one store of a row
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

import triton
import triton.language as tl


@triton.jit
def softmax_of(x):
    """x (B,) float32, padded with -inf."""
    log2_e: tl.constexpr = 1.4426950408889634
    e = tl.exp2((x - tl.max(x, axis=0)) * log2_e)
    return e * (1.0 / tl.sum(e, axis=0))


@triton.jit
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, B).to(tl.int64)
    exists = col < N
    X += row * stride_Xm
    Y += row * stride_Ym
    x = tl.load(X + col * stride_Xn, mask=exists, other=-float("inf")).to(tl.float32)
    tl.store(Y + col * stride_Yn, softmax_of(x).to(Y.dtype.element_ty), mask=exists)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    B = 64
    while B < N:
        B *= 2
    grid = (M, 1, 1)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
