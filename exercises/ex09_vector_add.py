"""ex09_vector_add · a first Triton kernel

Chapter 09 · difficulty 2 of 5 · 20 minutes

Out = a · X + Y for vectors, a block of B elements for each program.

    a, X (N,), Y (N,)   ->   Out (N,)        B a power of two, N any number

    program p:    elements p·B, p·B + 1, ..., B of them, as far as they exist

The kernel gets pointers: X + i is the address of X's element i, and for a block of numbers i it is a block of
addresses. Elements that do not exist are neither loaded nor stored: around the vectors lies memory that is not yours,
and the checker looks. X, Y and Out are float16 or float32, all of them alike; compute in their dtype or in float32. N
is at least 1. The grid is a tuple, or a function that gives one.

Not allowed: PyTorch in place of the kernel, tensors of your own, fewer or more programs than blocks, a second load or
store of an element, atomics, the finished function from flashlab or solutions/.

Hint: tl.program_id(0) is p, tl.arange(0, B) is 0 ... B − 1. The second argument of tl.load and the third of tl.store
are masks.
"""

import triton
import triton.language as tl


@triton.jit
def axpy_kernel(a, X, Y, Out, N, B: tl.constexpr):
    """One block of a · X + Y."""
    # your turn: my elements, their mask, load, compute, store
    raise NotImplementedError("ex09_vector_add: my elements, their mask, load, compute, store")


def axpy(a, X, Y, Out, B):
    """Fills Out with a · X + Y."""
    N = len(X)
    # your turn: the grid, a tuple of one number
    raise NotImplementedError("ex09_vector_add: the grid, a tuple of one number")
    axpy_kernel[grid](a, X, Y, Out, N, B)
