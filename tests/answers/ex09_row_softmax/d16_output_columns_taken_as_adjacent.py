# kind: one mistake
# what: the store leaves out stride_Yn, as in the tutorial, where neighbouring columns are neighbours in memory; it should be cols * stride_Yn
# shows: a Y whose column stride is not 1 (transposed, or every second column of a larger tensor)
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
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, B)
    mask = col_offsets < N
    row = tl.load(X + row_idx * stride_Xm + col_offsets * stride_Xn, mask=mask, other=-float("inf"))
    row = row.to(tl.float32)
    row_minus_max = row - tl.max(row, axis=0)
    numerator = tl.exp(row_minus_max)
    denominator = tl.sum(numerator, axis=0)
    softmax_output = numerator / denominator
    output_row_start_ptr = Y + row_idx * stride_Ym
    tl.store(output_row_start_ptr + col_offsets, softmax_output, mask=mask)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    B = triton.next_power_of_2(N)
    grid = (M,)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
