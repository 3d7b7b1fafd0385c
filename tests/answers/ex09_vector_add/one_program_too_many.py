# kind: one mistake
# what: the grid is N // B + 1
# shows: N a multiple of B: numbers are right, but one program too many runs (with nothing to do)
"""ex09_vector_add · a first Triton kernel"""

import triton
import triton.language as tl


@triton.jit
def axpy_kernel(a, X, Y, Out, N, B: tl.constexpr):
    """One block of a · X + Y."""
    p = tl.program_id(0)
    i = p * B + tl.arange(0, B)
    mask = i < N
    x = tl.load(X + i, mask)
    y = tl.load(Y + i, mask)
    tl.store(Out + i, a * x + y, mask)


def axpy(a, X, Y, Out, B):
    """Fills Out with a · X + Y."""
    N = len(X)
    grid = (N // B + 1,)                   # + 1 for the tail
    axpy_kernel[grid](a, X, Y, Out, N, B)
