# kind: one mistake
# what: only threads are counted as idle, at most `block` of them; lanes of a block's last warp that never get a thread are left out
# shows: block not a multiple of 32, a block whose elements reach its last warp (N = 8, block = 8 gives 0, should be 24)

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
    elements = [min(block, N - b * block) for b in range(blocks)]
    idle = 0
    for e in elements:
        warps = (e + 31) // 32
        threads = min(32 * warps, block)      # threads in the warps that have something to do
        idle += threads - e
    return blocks, blocks * block - sum(elements), idle
