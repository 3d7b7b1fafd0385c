# kind: right
# what: blocks counted up in a loop; the guard is an early return
"""ex02_vector_add · my answer."""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def add_kernel(A, B, C, N):
    """Written for one thread. A, B and C are pointers: A[i] is the i-th number."""
    before = blockIdx.x * blockDim.x
    me = before + threadIdx.x
    if not me < N:
        return
    a = A[me]
    b = B[me]
    C[me] = b + a


def blocks_needed(N, block):
    """How many blocks of `block` threads cover N elements."""
    blocks = 0
    while blocks * block < N:
        blocks += 1
    return blocks


def vector_add(A, B, block):
    """A + B, by a grid of blocks of `block` threads; and how many threads were launched."""
    N = len(A)
    C = torch.full((N,), float("nan"), dtype=A.dtype)              # what nobody writes stays NaN
    trace = launch(add_kernel, blocks_needed(N, block), block)(A, B, C, N)
    return C, trace.threads
