# kind: right
# what: early return, math.ceil replaced by negative floor
"""ex02_vector_add: my answer."""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def add_kernel(A, B, C, N):
    """Written for one thread. A, B and C are pointers: A[i] is the i-th number."""
    me = threadIdx.x
    before_me = blockIdx.x * blockDim.x
    if before_me + me >= N:
        return
    C[before_me + me] = A[before_me + me] + B[before_me + me]


def blocks_needed(N, block):
    """How many blocks of `block` threads cover N elements."""
    return -(-N // block)


def vector_add(A, B, block):
    """A + B, by a grid of blocks of `block` threads; and how many threads were launched."""
    N = len(A)
    C = torch.full((N,), float("nan"), dtype=A.dtype)              # what nobody writes stays NaN
    trace = launch(add_kernel, blocks_needed(N, block), block)(A, B, C, N)
    return C, trace.threads
