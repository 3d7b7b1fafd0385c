# kind: one mistake
# what: idle lanes of the last block only: the ragged last warp of the full blocks is forgotten
# shows: block not a multiple of 32 and more than one block: lanes(50, 40)
"""ex02_idle_lanes · my answer."""

def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = -(-N // block)
    without = blocks * block - N
    e = N - (blocks - 1) * block                           # elements of the last block
    idle = -(-e // 32) * 32 - e
    return blocks, without, idle
