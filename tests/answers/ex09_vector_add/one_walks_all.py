# kind: point missed
# what: a single program walks all blocks in a loop
# shows: numbers are right; the grid has 1 program whatever N
"""ex09_vector_add · a first Triton kernel"""

import triton
import triton.language as tl


@triton.jit
def axpy_kernel(a, X, Y, Out, N, B: tl.constexpr):
    """All blocks of a · X + Y."""
    for start in range(0, N, B):
        i = start + tl.arange(0, B)
        x = tl.load(X + i, i < N)
        y = tl.load(Y + i, i < N)
        tl.store(Out + i, a * x + y, i < N)


def axpy(a, X, Y, Out, B):
    """Fills Out with a · X + Y."""
    N = len(X)
    grid = (1,)
    axpy_kernel[grid](a, X, Y, Out, N, B)
