# kind: right
# what: set comprehension over bytes, one bound for all (itemsize sectors)
"""ex09_uncoalesced: my answer."""

def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    lanes = [start + n * stride for n in range(32)]
    sectors = len({(e * itemsize + b) // 32 for e in lanes for b in range(itemsize)})
    return sectors, sectors <= itemsize
