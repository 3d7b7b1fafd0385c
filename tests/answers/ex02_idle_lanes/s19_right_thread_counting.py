# kind: right
# what: old C habit: walks through every warp of every block and counts its threads one by one with plain ifs
# shows: only counting, no launch; warps without an element are skipped, a lane without thread counts as idle if its warp has an element
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

WARP = 32


def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = 0
    covered = 0
    while covered < N:
        covered += block
        blocks += 1
    without = covered - N

    idle = 0
    for b in range(blocks):
        lo = b * block                       # element of this block's thread 0
        hi = lo + block                      # one past that of its last thread
        if hi > N:
            hi = N
        elements = hi - lo
        warp = 0
        while warp * WARP < elements:        # only warps whose first lane has an element
            here = elements - warp * WARP
            if here < WARP:
                idle = idle + (WARP - here)
            warp = warp + 1
    return blocks, without, idle
