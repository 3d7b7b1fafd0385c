# kind: right
# what: negative remainders, full blocks and the last one apart
"""ex02_idle_lanes · my answer."""

def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    full, rest = divmod(N, block)
    blocks = full + bool(rest)
    return blocks, -N % block, full * (-block % 32) + (-rest % 32)
