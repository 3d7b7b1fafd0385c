# kind: right
# what: moves the pointers to the block's first element, masks by what is left of N, computes in float32, grid is a function
# shows: N = 1, N a multiple of B, N = multiple + 1; float16 rounds once at the store, which "compute in float32" allows
"""ex09_vector_add · a first Triton kernel

Chapter 09 · difficulty 2 of 5 · 20 minutes

Out = a · X + Y for vectors, a block of B elements for each program.

    a, X (N,), Y (N,)   ->   Out (N,)        B a power of two, N any number

    program p:    elements p·B, p·B + 1, ..., B of them, as far as they exist

The kernel gets pointers: X + i is the address of X's element i, and for a block of numbers i it is a block of addresses.
Elements that do not exist are neither loaded nor stored: around the vectors lies memory that is not yours, and the checker
looks.
X, Y and Out are float16 or float32, all of them alike; compute in their dtype or in float32. N is at least 1. The grid is a
tuple, or a function that gives one.

Not allowed: PyTorch in place of the kernel, tensors of your own, fewer or more programs than blocks, a second load or
store of an element, atomics, the finished function from flashlab or solutions/.

Hint: tl.program_id(0) is p, tl.arange(0, B) is 0 ... B − 1. The second argument of tl.load and the third of tl.store are masks.
"""

import triton
import triton.language as tl


@triton.jit
def axpy_kernel(a, X, Y, Out, N, B: tl.constexpr):
    """One block of a · X + Y."""
    first = tl.program_id(0) * B
    left = N - first                      # how many elements there are from here on
    lane = tl.arange(0, B)
    alive = lane < left
    x = tl.load(X + first + lane, alive).to(tl.float32)
    y = tl.load(Y + first + lane, alive).to(tl.float32)
    out = x * a + y
    tl.store(Out + first + lane, out.to(Out.dtype.element_ty), alive)


def axpy(a, X, Y, Out, B):
    """Fills Out with a · X + Y."""
    N = len(X)
    grid = lambda meta: (triton.cdiv(N, meta["B"]),)  # noqa: E731
    axpy_kernel[grid](a, X, Y, Out, N, B)
