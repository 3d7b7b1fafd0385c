# kind: point missed
# what: launches a kernel in flashlab_course.gpu's interpreter and reads the counts off the trace; the stub says to count before, without launching it
# shows: numbers are right for N up to 10,000 and blocks up to 1024; the launch itself is what is not allowed
"""ex02_idle_lanes · counting idle lanes before the launch

Chapter 02 · difficulty 2 of 5 · 20 minutes

A vector of N elements, blocks of `block` threads, one element a thread. Count without launching:

    blocks      how many blocks cover the vector
    without     how many threads are launched and have no element
    idle        how many lanes stand idle in the warps that do have an element

A warp always has 32 lanes. Blocks do not share warps: a block of 40 threads takes two warps, and 24 lanes of the second one
never get a thread. A warp in which no thread has an element leaves at the guard and is not counted in `idle`.
Example: N = 8, block = 64 gives blocks 1, without 56, idle 24.
N lies between 1 and 10,000, block between 1 and 1024: to go through the blocks one by one is fast enough.

Not allowed: launching it (flashlab_course.gpu), the finished function from solutions/.

Hint: look at one block with e elements. How many warps does it need for them, and how many lanes are those?
"""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def probe(X, N):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < N:
        X[i] = 1.0


def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = (N - 1) // block + 1
    trace = launch(probe, blocks, block)(torch.zeros(N), N)
    without = trace.threads - trace.storing_threads
    idle = trace.idle_lanes(line=4)              # the store; only warps with an element get there
    return blocks, without, idle
