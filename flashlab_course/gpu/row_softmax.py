"""Softmax of every row in one kernel: a row is read once, stays on chip, and is written once.

Eager PyTorch without a fused softmax takes five kernels and reads or writes the matrix eight times (max, subtract, exp,
sum, divide). Here a program holds whole rows, so the maximum, the exponentials and the sum never leave the SM.
"""

import torch
import triton
import triton.language as tl

from flashlab_course.gpu.launching import check_tensors

MAX_COLUMNS = 32768        # a program keeps whole rows in registers: 1024 threads, 32 numbers each


@triton.jit
def row_softmax_kernel(X, Y, M, stride_X: tl.constexpr, stride_Y: tl.constexpr, N: tl.constexpr,
                       B_m: tl.constexpr, B_n: tl.constexpr):
    # N and the strides are constants, so the compiler knows multiples of 8: then loads are 16 bytes wide
    rows = tl.program_id(0).to(tl.int64) * B_m + tl.arange(0, B_m)     # (B_m,)
    cols = tl.arange(0, B_n)                                           # (B_n,)  B_n >= N: the whole row
    inside = (rows[:, None] < M) & (cols < N)                          # (B_m, B_n)
    x = tl.load(X + rows[:, None] * stride_X + cols, inside, 0.0).to(tl.float32)
    x = tl.where(cols < N, x, -float("inf"))               # padding must not win the maximum, nor add to the sum
    x = tl.exp(x - tl.max(x, 1)[:, None])                  # (B_m, B_n)  at most 1: no overflow
    y = x * (1 / tl.sum(x, 1))[:, None]                    # one division a row
    tl.store(Y + rows[:, None] * stride_Y + cols, y, inside)           # rounded to Y's dtype here, once


def tiling(N):
    """(B_m, B_n, num_warps): short rows share a program, long ones get more warps; a thread holds about 16 numbers.

    Rows of an odd length start anywhere: they are loaded number by number, 32 a thread, by fewer warps that wait less.
    """
    B_n = triton.next_power_of_2(N)
    if N % 8:
        return max(1, 1024 // B_n), B_n, min(32, max(1, B_n // 1024))
    B_m = max(1, 2048 // B_n)
    return B_m, B_n, min(32, max(4, B_m * B_n // 512))


def row_softmax(X, *, B_m=None):
    """Softmax over the last dimension, in float32 inside.

    Shapes:  X (M, N), rows without gaps, any row stride -> (M, N) contiguous, in X's dtype; N <= 32768
    Traffic: reads M·N, writes M·N                         [elements]
    Grid:    ceil(M / B_m) programs of B_m rows
    """
    check_tensors(torch.float16, torch.float32, ndim=2, X=X)
    M, N = X.shape
    if N > MAX_COLUMNS:
        raise ValueError(f"X must have at most {MAX_COLUMNS} columns, a program holds whole rows; got {N}")
    if N > 1 and X.stride(1) != 1:
        raise ValueError(f"X must have rows without gaps (stride 1), got strides {X.stride()}")
    Y = torch.empty(M, N, dtype=X.dtype, device=X.device)
    best_B_m, B_n, num_warps = tiling(N)
    B_m = B_m or best_B_m
    with torch.cuda.device_of(X):
        row_softmax_kernel[(triton.cdiv(M, B_m),)](X, Y, M, X.stride(0), Y.stride(0), N, B_m, B_n, num_warps=num_warps)
    return Y
