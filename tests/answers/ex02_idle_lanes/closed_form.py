# kind: right
# what: closed form with divmod and negative modulo
"""ex02_idle_lanes: my answer."""

def lanes(N, block):
    """(blocks, without, idle) for N elements and blocks of `block` threads."""
    full, rest = divmod(N, block)
    blocks = full + (rest > 0)
    return blocks, blocks * block - N, full * (-block % 32) + (-rest % 32)
