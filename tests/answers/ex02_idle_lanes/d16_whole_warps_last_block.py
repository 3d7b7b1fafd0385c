# kind: two mistakes
# what: (1) `without` counts launched threads in whole warps, it should count block threads a block; (2) `idle` looks at the last block only, full blocks whose size is no multiple of 32 have idle lanes as well
# shows: (1) block no multiple of 32, N = 40, block = 40: without 24 instead of 0; (2) N = 100, block = 40: idle 12 instead of 60
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


def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = (N + block - 1) // block
    warps_per_block = (block + 31) // 32
    without = blocks * warps_per_block * 32 - N         # the hardware launches warps, not threads

    e = N - (blocks - 1) * block                        # elements in the last block, all the others are full
    warps_used = (e + 31) // 32
    idle = warps_used * 32 - e
    return blocks, without, idle
