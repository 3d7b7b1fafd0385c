# kind: point missed
# what: Out is zeroed by a masked store and then built with tl.atomic_add
# shows: numbers right; atomics, several stores
"""ex09_vector_add: my answer."""

import triton
import triton.language as tl


@triton.jit
def axpy_kernel(a, X, Y, Out, N, B: tl.constexpr):
    """One block of a · X + Y."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    ok = i < N
    tl.store(Out + i, tl.load(Y + i, ok), ok)
    tl.atomic_add(Out + i, a * tl.load(X + i, ok), mask=ok)


def axpy(a, X, Y, Out, B):
    """Fills Out with a · X + Y."""
    N = len(X)
    grid = (triton.cdiv(N, B),)
    axpy_kernel[grid](a, X, Y, Out, N, B)
