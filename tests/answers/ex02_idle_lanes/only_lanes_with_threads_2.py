# kind: one mistake
# what: an idle lane is taken to be a thread without an element, so lanes that never get a thread are left out
#       (min(block, ...) should not be there: a warp always has 32 lanes)
# shows: a block that is not a multiple of 32 and whose last warp has an element, e.g. N = 80, block = 40: 0 instead of 48

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
    blocks = (N + block - 1) // block
    without = blocks * block - N
    idle = 0
    for b in range(blocks):
        e = min(block, N - b * block)
        warps = (e + 31) // 32
        idle += min(block, 32 * warps) - e
    return blocks, without, idle
