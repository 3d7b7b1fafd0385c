# kind: one mistake
# what: X is loaded with the mask, Y without
# shows: N not a multiple of B: reads behind the end of Y; Out is right
"""ex09_vector_add · a first Triton kernel"""

import triton
import triton.language as tl


@triton.jit
def axpy_kernel(a, X, Y, Out, N, B: tl.constexpr):
    """One block of a · X + Y."""
    offs = tl.program_id(0) * B + tl.arange(0, B)
    ok = offs < N
    x = tl.load(X + offs, mask=ok, other=0.0)
    y = tl.load(Y + offs)
    tl.store(Out + offs, a * x + y, mask=ok)


def axpy(a, X, Y, Out, B):
    """Fills Out with a · X + Y."""
    N = len(X)
    grid = (triton.cdiv(N, B),)
    axpy_kernel[grid](a, X, Y, Out, N, B)
