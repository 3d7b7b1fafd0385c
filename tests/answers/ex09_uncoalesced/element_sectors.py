# kind: one mistake
# what: the sector is element // 32, itemsize forgotten
# shows: itemsize != 1
"""ex09_uncoalesced: my answer."""

def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    s = {(start + n * stride) // 32 for n in range(32)}
    return len(s), len(s) <= itemsize
