# kind: one mistake
# what: the guard asks for the thread's number in its block, not for the element's
# shows: N > block and not a multiple of it: IndexError; right for one block and where block divides N
"""ex02_vector_add · my answer."""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def add_kernel(A, B, C, N):
    """Written for one thread. A, B and C are pointers: A[i] is the i-th number."""
    t = threadIdx.x
    i = blockIdx.x * blockDim.x + t
    if t < N:
        C[i] = A[i] + B[i]


def blocks_needed(N, block):
    """How many blocks of `block` threads cover N elements."""
    return -(-N // block)


def vector_add(A, B, block):
    """A + B, by a grid of blocks of `block` threads; and how many threads were launched."""
    N = len(A)
    C = torch.full((N,), float("nan"), dtype=A.dtype)              # what nobody writes stays NaN
    trace = launch(add_kernel, blocks_needed(N, block), block)(A, B, C, N)
    return C, trace.threads
