# kind: point missed
# what: a grid-stride loop under a grid of one block: each thread adds many elements
# shows: N > block: numbers right, but one block does the work of all; threads launched are too few
"""ex02_vector_add · my answer."""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def add_kernel(A, B, C, N):
    """Written for one thread. A, B and C are pointers: A[i] is the i-th number."""
    i = blockIdx.x * blockDim.x + threadIdx.x
    while i < N:
        C[i] = A[i] + B[i]
        i = i + blockDim.x


def blocks_needed(N, block):
    """How many blocks of `block` threads cover N elements."""
    return 1


def vector_add(A, B, block):
    """A + B, by a grid of blocks of `block` threads; and how many threads were launched."""
    N = len(A)
    C = torch.full((N,), float("nan"), dtype=A.dtype)              # what nobody writes stays NaN
    trace = launch(add_kernel, blocks_needed(N, block), block)(A, B, C, N)
    return C, trace.threads
