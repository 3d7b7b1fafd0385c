# kind: one mistake
# what: the last block is moved back so that it ends at N: no mask needed, but elements are done twice
# shows: N not a multiple of B: some elements are loaded and stored by two programs; N < B: reads and writes before the vectors
"""ex09_vector_add · a first Triton kernel"""

import triton
import triton.language as tl


@triton.jit
def axpy_kernel(a, X, Y, Out, N, B: tl.constexpr):
    """One block of a · X + Y."""
    start = tl.minimum(tl.program_id(0) * B, N - B)
    i = start + tl.arange(0, B)
    tl.store(Out + i, a * tl.load(X + i) + tl.load(Y + i))


def axpy(a, X, Y, Out, B):
    """Fills Out with a · X + Y."""
    N = len(X)
    grid = (triton.cdiv(N, B),)
    axpy_kernel[grid](a, X, Y, Out, N, B)
