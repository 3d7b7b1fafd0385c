# kind: right
# what: fused-softmax tutorial, with row pointers, base 2 and one reciprocal instead of a division per element
# shows: exp(x - max) = 2^((x - max) · log2 e), in float32; padding is -inf, so it is never the maximum and adds 0
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
    row_start_ptr = X + row_idx * stride_Xm
    col_offsets = tl.arange(0, B)
    in_row = col_offsets < N
    # columns in 64 bits as well, it costs nothing here
    input_ptrs = row_start_ptr + col_offsets.to(tl.int64) * stride_Xn
    row = tl.load(input_ptrs, mask=in_row, other=-float("inf")).to(tl.float32)
    row_minus_max = row - tl.max(row, axis=0)
    numerator = tl.exp2(row_minus_max * 1.4426950408889634)
    one_over_denominator = 1.0 / tl.sum(numerator, axis=0)
    softmax_output = numerator * one_over_denominator
    output_ptrs = Y + row_idx * stride_Ym + col_offsets.to(tl.int64) * stride_Yn
    tl.store(output_ptrs, softmax_output.to(Y.dtype.element_ty), mask=in_row)


def row_softmax(X, Y):
    """Fills Y with the softmax of each row of X."""
    M, N = X.shape
    B = triton.next_power_of_2(N)
    grid = (M,)
    softmax_kernel[grid](X, Y, *X.stride(), *Y.stride(), N, B)
