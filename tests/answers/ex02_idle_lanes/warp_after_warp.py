# kind: right
# what: beginner: walks block by block and warp by warp with two loops
"""ex02_idle_lanes · my answer."""

def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = without = idle = 0
    left = N
    while left > 0:
        here = min(left, block)                            # elements of this block
        blocks += 1
        without += block - here
        while here > 0:
            idle += max(0, 32 - here)
            here -= 32
        left -= block
    return blocks, without, idle
