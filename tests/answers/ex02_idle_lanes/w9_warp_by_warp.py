# kind: right
# what: goes through every block and every warp of it and counts the lanes that have an element
# shows: warps without an element are skipped, lanes without a thread count as idle; plain integers for any N and block

"""ex02_idle_lanes · counting idle lanes before the launch

Chapter 02 · difficulty 2 of 5 · 20 minutes

A vector of N elements, blocks of `block` threads, one element a thread. Count without launching:

    blocks      how many blocks cover the vector
    without     how many threads are launched and have no element
    idle        how many lanes stand idle in the warps that do have an element

A warp always has 32 lanes. Blocks do not share warps: a block of 40 threads takes two warps, and 24 lanes of the second one
never get a thread. A warp in which no thread has an element leaves at the guard and is not counted in `idle`.
Example: N = 8, block = 64 gives blocks 1, without 56, idle 24.
N lies between 1 and 10,000: to go through the blocks one by one is fast enough.

Not allowed: launching it (flashlab_course.gpu), the finished function from solutions/.

Hint: look at one block with e elements. How many warps does it need for them, and how many lanes are those?
"""


def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks, without, idle = 0, 0, 0
    start = 0
    while start < N:
        blocks += 1
        mine = min(block, N - start)                # elements of this block
        without += block - mine
        warp = 0
        while warp < block:                         # first thread of the warp
            busy = max(0, min(mine - warp, 32))
            if busy > 0:
                idle += 32 - busy
            warp += 32
        start += block
    return blocks, without, idle
