"""ex02_idle_lanes · counting idle lanes before the launch

Chapter 02 · difficulty 2 of 5 · 20 minutes

A vector has N elements, a block has `block` threads, and each thread takes one element. Count without launching:

    blocks      how many blocks cover the vector
    without     how many threads are launched and have no element
    idle        how many lanes are idle in the warps that have at least one element

A warp always has 32 lanes. Blocks do not share warps: a block of 40 threads takes two warps, and 24 lanes of the second
one never get a thread. A warp in which no thread has an element leaves at the guard and is not counted in `idle`.
Example: N = 8, block = 64 gives blocks 1, without 56, idle 24. N lies between 1 and 10,000, block between 1 and 1024:
a loop over the blocks is fast enough.

Not allowed: launching it (flashlab_course.gpu), the finished function from solutions/.

Hint: look at one block with e elements. How many warps does it need for them, and how many lanes are those?
"""


def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    # your turn: blocks, threads without an element, idle lanes of the warps that have one
    raise NotImplementedError("ex02_idle_lanes: blocks, threads without an element, idle lanes of the warps that have one")
