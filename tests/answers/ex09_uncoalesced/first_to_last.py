# kind: one mistake
# what: counts all sectors from the first touched one to the last, hit or not
# shows: strides wider than a sector (float32: |stride| > 8): sectors between lanes are counted too
"""ex09_uncoalesced · spot the uncoalesced access"""


def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    first = start * itemsize // 32
    last = (start + 31 * stride) * itemsize // 32
    sectors = abs(last - first) + 1
    return sectors, sectors <= 32 * itemsize // 32
