# kind: one mistake
# what: a block's last warp is taken to have only the threads it was given: idle counts threads, not lanes
# shows: block not a multiple of 32: lanes(40, 40) gives 0 and not 24
"""ex02_idle_lanes · my answer."""

def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    blocks = -(-N // block)
    idle = 0
    for b in range(blocks):
        e = min(block, N - b * block)
        for w in range(0, e, 32):
            threads = min(32, block - w)
            idle += threads - min(threads, e - w)
    return blocks, blocks * block - N, idle
