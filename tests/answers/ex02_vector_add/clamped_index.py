# kind: one mistake
# what: the index is clamped to N - 1 in place of a guard: idle threads add the last element again
# shows: N not a multiple of block: C is right, but threads without an element do another thread's work (as many storing threads as launched)
"""ex02_vector_add · my answer."""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def add_kernel(A, B, C, N):
    """Written for one thread. A, B and C are pointers: A[i] is the i-th number."""
    i = min(blockIdx.x * blockDim.x + threadIdx.x, N - 1)
    C[i] = A[i] + B[i]


def blocks_needed(N, block):
    """How many blocks of `block` threads cover N elements."""
    return N // block + (N % block > 0)


def vector_add(A, B, block):
    """A + B, by a grid of blocks of `block` threads; and how many threads were launched."""
    N = len(A)
    C = torch.full((N,), float("nan"), dtype=A.dtype)              # what nobody writes stays NaN
    trace = launch(add_kernel, blocks_needed(N, block), block)(A, B, C, N)
    return C, trace.threads
