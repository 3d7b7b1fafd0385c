# kind: one mistake
# what: a * (x + y)
# shows: a != 1
"""ex09_vector_add: my answer."""

import triton
import triton.language as tl


@triton.jit
def axpy_kernel(a, X, Y, Out, N, B: tl.constexpr):
    """One block of a · X + Y."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    ok = i < N
    x = tl.load(X + i, ok)
    y = tl.load(Y + i, ok)
    tl.store(Out + i, a * (x + y), ok)


def axpy(a, X, Y, Out, B):
    """Fills Out with a · X + Y."""
    N = len(X)
    grid = (triton.cdiv(N, B),)
    axpy_kernel[grid](a, X, Y, Out, N, B)
