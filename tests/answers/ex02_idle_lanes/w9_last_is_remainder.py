# kind: one mistake
# what: the last block is given N % block elements also where N is a multiple of block; that is 0, and the last full block's idle lanes are missing
# shows: N a multiple of block, and block no multiple of 32: N = 80, block = 40 gives idle 24 instead of 48

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

WARP = 32


def idle_in(e):
    warps = (e + WARP - 1) // WARP
    return warps * WARP - e


def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = (N + block - 1) // block
    without = blocks * block - N
    full, last = blocks - 1, N % block
    return blocks, without, full * idle_in(block) + idle_in(last)
