# kind: point missed
# what: grid (1,): a single program walks all blocks in a loop
# shows: numbers right; fewer programs
"""ex09_vector_add: my answer."""

import triton
import triton.language as tl


@triton.jit
def axpy_kernel(a, X, Y, Out, N, B: tl.constexpr):
    """One block of a · X + Y."""
    for p in range(0, tl.cdiv(N, B)):
        i = p * B + tl.arange(0, B)
        tl.store(Out + i, a * tl.load(X + i, i < N) + tl.load(Y + i, i < N), i < N)


def axpy(a, X, Y, Out, B):
    """Fills Out with a · X + Y."""
    N = len(X)
    grid = (1,)
    axpy_kernel[grid](a, X, Y, Out, N, B)
