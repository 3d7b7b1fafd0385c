# kind: one mistake
# what: padding is loaded as 0 and kept out of the sum by a product with the mask, but it still takes part in the maximum; the maximum should be taken over the columns that exist
# shows: rows whose numbers all lie below about -90 where N is no power of two: the sum underflows to 0 and Y is 0 / 0
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
    cols = tl.arange(0, B)
    ones = (cols < N).to(tl.float32)            # 1 for a real column, 0 for padding
    values = tl.load(X + row * stride_Xm + cols * stride_Xn, cols < N, 0.0).to(tl.float32)
    # the padding is 0, it must not count in the sum: multiply by 0
    e = tl.exp(values - tl.max(values, 0)) * ones
    tl.store(Y + row * stride_Ym + cols * stride_Yn, e / tl.sum(e, 0), cols < N)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    grid, B = (M,), triton.next_power_of_2(N)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
