# kind: right
# what: walks all blocks and their warps and counts, as the hardware would
# shows: a warp is counted only if its first lane has an element: elements fill a block from thread 0 on
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

WARP = 32


def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = 0
    idle = 0
    left = N
    while left > 0:
        blocks += 1
        elements = min(left, block)
        for first in range(0, block, WARP):                # the first thread of each warp of this block
            busy = max(0, min(elements - first, WARP))
            if busy > 0:
                idle += WARP - busy
        left -= elements
    without = blocks * block - N
    return blocks, without, idle
