"""Vector addition in Triton: the smallest kernel there is, and the same work done one number at a time.

A CUDA thread adds one element; a Triton program adds a block of B elements, and the compiler hands them to its threads.
"""

import torch
import triton
import triton.language as tl

from flashlab_course.gpu.launching import check_same_shape, check_tensors


@triton.jit
def vector_add_kernel(X, Y, Out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)             # (B,)  which elements are mine: a block of offsets, not one
    mine = i < N                                           # (B,)  the last block sticks out
    x = tl.load(X + i, mine)                               # (B,)  a pointer plus offsets: a block of pointers
    y = tl.load(Y + i, mine)
    tl.store(Out + i, x + y, mine)


@triton.jit
def one_by_one_kernel(X, Y, Out, N, B: tl.constexpr):
    start = tl.program_id(0) * B
    for i in range(start, tl.minimum(start + B, N)):       # scalars: every thread of the program does the same addition
        tl.store(Out + i, tl.load(X + i) + tl.load(Y + i))


def vector_add(X, Y, *, B=1024, kernel=vector_add_kernel):
    """X + Y.

    Shapes:  X (N,), Y (N,) -> (N,), all contiguous; float16, float32
    Grid:    ceil(N / B) programs of B elements, B a power of two
    """
    check_tensors(torch.float16, torch.float32, ndim=1, X=X, Y=Y)
    check_same_shape(X, Y)
    Out = torch.empty_like(X)
    with torch.cuda.device_of(X):
        kernel[(triton.cdiv(len(X), B),)](X, Y, Out, len(X), B)
    return Out
