"""Matrix addition in Triton for any strides: two dimensions of pointers, then the same with tensor descriptors."""

import torch
import triton
import triton.language as tl

from flashlab_course.gpu.launching import check_same_shape, check_tensors, prepare_descriptors


@triton.jit
def matrix_add_kernel(
    X, Y, Out,                                             # pointers to each matrix's first element
    stride_Xm, stride_Xn, stride_Ym, stride_Yn,            # elements to step over for the next row, the next column
    stride_Om, stride_On,
    M, N, B_m: tl.constexpr, B_n: tl.constexpr,
):
    rows = tl.program_id(0) * B_m + tl.arange(0, B_m)      # (B_m,)
    cols = tl.program_id(1) * B_n + tl.arange(0, B_n)      # (B_n,)
    inside = (rows[:, None] < M) & (cols < N)              # (B_m, B_n)
    rows = rows[:, None].to(tl.int64)                      # (B_m, 1)    rows * stride passes 2^31 in a matrix of 4 GiB
    x = tl.load(X + rows * stride_Xm + cols * stride_Xn, inside)
    y = tl.load(Y + rows * stride_Ym + cols * stride_Yn, inside)
    tl.store(Out + rows * stride_Om + cols * stride_On, x + y, inside)


@triton.jit
def matrix_add_descriptor_kernel(
    X, Y, Out, stride_Xm, stride_Ym, stride_Om,            # the last stride is 1: a descriptor wants rows without gaps
    M, N, B_m: tl.constexpr, B_n: tl.constexpr,
):
    x_tiles = tl.make_tensor_descriptor(X, [M, N], [stride_Xm, 1], [B_m, B_n])
    y_tiles = tl.make_tensor_descriptor(Y, [M, N], [stride_Ym, 1], [B_m, B_n])
    out_tiles = tl.make_tensor_descriptor(Out, [M, N], [stride_Om, 1], [B_m, B_n])
    corner = [tl.program_id(0) * B_m, tl.program_id(1) * B_n]
    out_tiles.store(corner, x_tiles.load(corner) + y_tiles.load(corner))     # past the edge: reads 0, writes nothing


def matrix_add(X, Y, *, B_m=32, B_n=64, descriptors=False):
    """X + Y.

    Shapes:  X (M, N), Y (M, N) of any strides -> (M, N) contiguous; float16, float32.
             With descriptors: rows without gaps, and row strides of whole 16 bytes
    Grid:    (ceil(M / B_m), ceil(N / B_n)) programs, one tile each, B_m and B_n powers of two
    """
    check_tensors(torch.float16, torch.float32, ndim=2, X=X, Y=Y)
    check_same_shape(X, Y)
    M, N = X.shape
    Out = torch.empty(M, N, dtype=X.dtype, device=X.device)
    grid = (triton.cdiv(M, B_m), triton.cdiv(N, B_n))      # the second axis of a grid stops at 65535 programs
    with torch.cuda.device_of(X):
        if descriptors:
            prepare_descriptors(X=X, Y=Y, Out=Out)
            matrix_add_descriptor_kernel[grid](X, Y, Out, X.stride(0), Y.stride(0), Out.stride(0), M, N, B_m, B_n)
        else:
            matrix_add_kernel[grid](X, Y, Out, *X.stride(), *Y.stride(), *Out.stride(), M, N, B_m, B_n)
    return Out
