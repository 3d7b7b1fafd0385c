# kind: one mistake
# what: idle counts all lanes of all launched warps, also warps without any element
# shows: last block with a warp that has no element, e.g. N=8, block=64
"""ex02_idle_lanes: my answer."""

def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = (N + block - 1) // block
    without = blocks * block - N
    idle = 0
    for b in range(blocks):
        e = min(block, N - b * block)
        warps = (block + 31) // 32
        idle += warps * 32 - e
    return blocks, without, idle
