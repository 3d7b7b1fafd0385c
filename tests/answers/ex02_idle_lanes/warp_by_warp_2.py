# kind: right
# what: goes through every block and every one of its warps and counts, as one would on paper
# shows: blocks that are no multiple of 32, blocks below 32, the last block short or full, warps without an element not counted
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


def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = 0
    without = 0
    idle = 0
    left = N                                  # elements not yet given to a block
    while left > 0:
        blocks += 1
        e = min(left, block)                  # this block's elements
        left -= e
        without += block - e
        while e > 0:                          # its warps, until the elements are used up
            in_this_warp = min(e, 32)
            idle += 32 - in_this_warp
            e -= in_this_warp
    return blocks, without, idle
