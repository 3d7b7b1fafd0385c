# kind: right
# what: pads with 0 at the load and replaces the padding by -inf afterwards; multiplies by the inverse of the sum; B from bit_length
# shows: N = 1, N a power of two or not, all numbers near -1000, float16, strides of X and Y that differ

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
def softmax_kernel(X, Y, stride_Xm, stride_Xn, stride_Ym, stride_Yn, N, B: tl.constexpr):
    """Row number program_id(0)."""
    row = tl.program_id(0).to(tl.int64)
    X += row * stride_Xm
    Y += row * stride_Ym
    col = tl.arange(0, B).to(tl.int64)
    exists = col < N

    x = tl.load(X + col * stride_Xn, mask=exists, other=0.0).to(tl.float32)
    x = tl.where(exists, x, float("-inf"))
    x -= tl.max(x, axis=0)
    e = tl.exp(x)
    y = e / tl.sum(e, axis=0)
    tl.store(Y + col * stride_Yn, y.to(Y.dtype.element_ty), mask=exists)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    B = 1 << (N - 1).bit_length()
    grid = (M,)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
