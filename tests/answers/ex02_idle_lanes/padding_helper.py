# kind: right
# what: a helper for the lanes that stand idle beside e elements; the full blocks by multiplication, the last block by itself
# shows: divmod(N - 1, block) makes the last block hold 1 to block elements, also where block divides N
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

WARP = 32


def spare(e):
    """Idle lanes in the fewest warps that hold e elements."""
    return -e % WARP


def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    full, rest = divmod(N - 1, block)          # `full` blocks before the last one, which has rest + 1 elements
    blocks = full + 1
    return blocks, blocks * block - N, full * spare(block) + spare(rest + 1)
