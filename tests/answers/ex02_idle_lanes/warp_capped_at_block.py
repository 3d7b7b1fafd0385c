# kind: one mistake
# what: a warp in a small block is taken to have min(32, block) lanes
# shows: block < 32 or block % 32 != 0 ... any block < 32
"""ex02_idle_lanes: my answer."""

def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = (N + block - 1) // block
    without = blocks * block - N
    idle = 0
    for b in range(blocks):
        e = min(block, N - b * block)
        warps = (e + 31) // 32
        idle += warps * min(32, block) - e
    return blocks, without, idle
