# kind: one mistake
# what: index is threadIdx.x * blockDim.x + blockIdx.x: thread and block are exchanged
# shows: almost any with N > 1: elements stay NaN
"""ex02_vector_add: my answer."""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def add_kernel(A, B, C, N):
    """Written for one thread. A, B and C are pointers: A[i] is the i-th number."""
    i = threadIdx.x * blockDim.x + blockIdx.x
    if i < N:
        C[i] = A[i] + B[i]


def blocks_needed(N, block):
    """How many blocks of `block` threads cover N elements."""
    return (N + block - 1) // block


def vector_add(A, B, block):
    """A + B, by a grid of blocks of `block` threads; and how many threads were launched."""
    N = len(A)
    C = torch.full((N,), float("nan"), dtype=A.dtype)              # what nobody writes stays NaN
    trace = launch(add_kernel, blocks_needed(N, block), block)(A, B, C, N)
    return C, trace.threads
