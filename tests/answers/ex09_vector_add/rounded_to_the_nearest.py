# kind: one mistake
# what: the number of blocks is round(N / B)
# shows: a tail of less than half a block (at exactly half: Python rounds to even) is never written
"""ex09_vector_add · a first Triton kernel"""

import triton
import triton.language as tl


@triton.jit
def axpy_kernel(a, X, Y, Out, N, B: tl.constexpr):
    """One block of a · X + Y."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    inside = i < N
    result = tl.load(X + i, inside) * a + tl.load(Y + i, inside)
    tl.store(Out + i, result, inside)


def axpy(a, X, Y, Out, B):
    """Fills Out with a · X + Y."""
    N = len(X)
    grid = (max(1, round(N / B)),)
    axpy_kernel[grid](a, X, Y, Out, N, B)
