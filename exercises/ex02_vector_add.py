"""ex02_vector_add · a kernel, its grid and its guard

Chapter 02 · difficulty 1 of 5 · 15 minutes

Add two vectors. Write the kernel, which is the code of one thread, and the number of blocks.

    A (N,)   B (N,)   ->   C (N,)        C[i] = A[i] + B[i]        one thread for each element

    threadIdx.x     the number of a thread within its block
    blockIdx.x      the number of its block
    blockDim.x      the number of threads in a block

Thread i of the whole grid adds element i, and no other thread does. A thread without an element does nothing. N need
not be a multiple of the block. Every element must be written, and no thread may touch memory outside the vectors. The
interpreter of flashlab_course.gpu.simt runs the kernel; its lines are those of CUDA C++. Tensors are float32, and no
size is 0.

Not allowed: PyTorch in place of the kernel, a thread that does the work of others, the finished function from flashlab
or solutions/.

Hint: how many elements do the blocks before mine take? What must a thread do that has no element?
"""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def add_kernel(A, B, C, N):
    """Written for one thread. A, B and C are pointers: A[i] is the i-th number."""
    # your turn: my element's number, the guard, the sum
    raise NotImplementedError("ex02_vector_add: my element's number, the guard, the sum")


def blocks_needed(N, block):
    """How many blocks of `block` threads cover N elements, none of them without an element."""
    # your turn: the number of blocks
    raise NotImplementedError("ex02_vector_add: the number of blocks")


def vector_add(A, B, block):
    """A + B, by a grid of blocks of `block` threads; and how many threads were launched."""
    N = len(A)
    C = torch.full((N,), float("nan"), dtype=A.dtype)              # what nobody writes stays NaN
    trace = launch(add_kernel, blocks_needed(N, block), block)(A, B, C, N)
    return C, trace.threads
