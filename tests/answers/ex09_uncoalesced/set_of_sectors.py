# kind: right
# what: a set of sectors, first and last byte of each element
"""ex09_uncoalesced: my answer."""

def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    touched = set()
    for lane in range(32):
        touched.add((start + lane * stride) * itemsize // 32)
        touched.add(((start + lane * stride) * itemsize + itemsize - 1) // 32)
    sectors = len(touched)
    distinct = 1 if stride == 0 else 32
    return sectors, sectors <= max(1, -(-distinct * itemsize // 32))
