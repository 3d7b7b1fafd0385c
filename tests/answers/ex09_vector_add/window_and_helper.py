# kind: right
# what: pointers moved to the block's start, a window of what is left, the arithmetic in a helper of its own
"""ex09_vector_add · a first Triton kernel"""

import triton
import triton.language as tl


@triton.jit
def combine(a, x, y):
    return y + x * a


@triton.jit
def axpy_kernel(a, X, Y, Out, N, B: tl.constexpr):
    """One block of a · X + Y."""
    start = tl.program_id(axis=0) * B
    lane = tl.arange(0, B)
    here = lane < N - start
    X += start
    Y += start
    Out += start
    tl.store(Out + lane, combine(a, tl.load(X + lane, mask=here), tl.load(Y + lane, mask=here)), mask=here)


def axpy(a, X, Y, Out, B):
    """Fills Out with a · X + Y."""
    N = len(X)
    grid = (-(-N // B),)
    axpy_kernel[grid](a, X, Y, Out, N, B)
