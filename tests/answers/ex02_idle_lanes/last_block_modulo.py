# kind: one mistake
# what: the last block's elements are N % block, which is 0 where the last block is full; then its idle lanes are lost
#       (should be `block` in that case)
# shows: N a multiple of a block that is not a multiple of 32, e.g. N = 40, block = 40: idle 0 instead of 24

"""ex02_idle_lanes · counting idle lanes before the launch

Chapter 02 · difficulty 2 of 5 · 20 minutes

A vector of N elements, blocks of `block` threads, one element a thread. Count without launching:

    blocks      how many blocks cover the vector
    without     how many threads are launched and have no element
    idle        how many lanes stand idle in the warps that do have an element

A warp always has 32 lanes. Blocks do not share warps: a block of 40 threads takes two warps, and 24 lanes of the second one
never get a thread. A warp in which no thread has an element leaves at the guard and is not counted in `idle`.
Example: N = 8, block = 64 gives blocks 1, without 56, idle 24.
N is at least 1.

Not allowed: launching it (flashlab_course.gpu), the finished function from solutions/.

Hint: look at one block with e elements. How many warps does it need for them, and how many lanes are those?
"""
import math


def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = math.ceil(N / block)
    without = blocks * block - N

    def idle_lanes(e):
        return math.ceil(e / 32) * 32 - e

    idle = (blocks - 1) * idle_lanes(block) + idle_lanes(N % block)
    return blocks, without, idle
