# kind: right
# what: walks the warps of one block in a helper, once for a full block and once for the last one
# shows: each warp adds 32 minus its elements if it has any; the last block has N - (blocks - 1) · block elements, never 0

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


def _idle_in_block(elements):
    """Lanes without an element, in those warps of a block that have at least one."""
    idle = 0
    while elements > 0:
        here = min(elements, WARP)
        idle += WARP - here
        elements -= here
    return idle


def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks, rest = divmod(N, block)
    if rest > 0:
        blocks += 1
    last = N - (blocks - 1) * block
    without = block - last
    idle = (blocks - 1) * _idle_in_block(block) + _idle_in_block(last)
    return blocks, without, idle
