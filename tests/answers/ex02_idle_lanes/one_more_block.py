# kind: two mistakes
# what: N // block + 1 blocks; and warps are filled across blocks
# shows: blocks and without where block divides N; idle where block is no multiple of 32 and there is more than one block
"""ex02_idle_lanes · my answer."""

def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = N // block + 1
    without = blocks * block - N
    idle = (32 - N % 32) % 32
    return blocks, without, idle
