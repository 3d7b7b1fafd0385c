# kind: one mistake
# what: warps are counted over the whole vector as if blocks shared warps
# shows: block not a multiple of 32 and more than one block
"""ex02_idle_lanes: my answer."""

def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = -(-N // block)
    without = blocks * block - N
    warps = -(-N // 32)
    return blocks, without, warps * 32 - N
