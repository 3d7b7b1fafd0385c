# kind: right
# what: pointers are moved to the block first, mask from what is left
"""ex09_vector_add: my answer."""

import triton
import triton.language as tl


@triton.jit
def axpy_kernel(a, X, Y, Out, N, B: tl.constexpr):
    """One block of a · X + Y."""
    first = tl.program_id(0) * B
    left = N - first
    n = tl.arange(0, B)
    result = tl.load(Y + first + n, mask=n < left, other=0.0)
    result += a * tl.load(X + first + n, mask=n < left, other=0.0)
    tl.store(Out + first + n, result, mask=n < left)


def axpy(a, X, Y, Out, B):
    """Fills Out with a · X + Y."""
    N = len(X)
    grid = (len(range(0, N, B)),)
    axpy_kernel[grid](a, X, Y, Out, N, B)
