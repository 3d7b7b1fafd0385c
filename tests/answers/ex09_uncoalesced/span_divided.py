# kind: one mistake
# what: sectors = span from first to last byte / 32, as if all in between were moved
# shows: stride large
"""ex09_uncoalesced: my answer."""

def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    first, last = sorted((start * itemsize, (start + 31 * stride) * itemsize))
    sectors = (last + itemsize - 1) // 32 - first // 32 + 1
    return sectors, sectors <= itemsize
