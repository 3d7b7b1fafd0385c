# kind: one mistake
# what: the last block's elements are N % block, which is 0 for a full last block
# shows: N a multiple of block and block not a multiple of 32: lanes(80, 40) gives idle 24 and not 48
"""ex02_idle_lanes · my answer."""

WARP = 32


def idle_in(e):
    warps = (e + WARP - 1) // WARP
    return warps * WARP - e


def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = (N + block - 1) // block
    without = blocks * block - N
    idle = (blocks - 1) * idle_in(block) + idle_in(N % block)
    return blocks, without, idle
