# kind: right
# what: walks block by block and warp by warp as the GPU would, without launching, and counts
# shows: each warp is counted only if at least one of its threads has an element; its lanes without a thread are idle as well
"""ex02_idle_lanes · counting idle lanes before the launch

Chapter 02 · difficulty 2 of 5 · 20 minutes

A vector of N elements, blocks of `block` threads, one element a thread. Count without launching:

    blocks      how many blocks cover the vector
    without     how many threads are launched and have no element
    idle        how many lanes stand idle in the warps that do have an element

A warp always has 32 lanes. Blocks do not share warps: a block of 40 threads takes two warps, and 24 lanes of the second one
never get a thread. A warp in which no thread has an element leaves at the guard and is not counted in `idle`.
Example: N = 8, block = 64 gives blocks 1, without 56, idle 24.

Not allowed: launching it (flashlab_course.gpu), the finished function from solutions/.

Hint: look at one block with e elements. How many warps does it need for them, and how many lanes are those?
"""

def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = 0
    without = 0
    idle = 0
    left = N
    while left > 0:
        e = left if left < block else block      # elements of this block
        blocks += 1
        without += block - e
        first = 0
        while first < e:                         # the warps whose first thread has an element
            busy = e - first
            if busy > 32:
                busy = 32
            idle += 32 - busy
            first += 32
        left -= e
    return blocks, without, idle
