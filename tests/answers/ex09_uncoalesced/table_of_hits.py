# kind: right
# what: a beginner's dictionary: which sector is hit how often; the best load is counted by the same helper
"""ex09_uncoalesced · spot the uncoalesced access"""


def count(start, stride, itemsize):
    hits = {}
    for lane in range(32):
        first_byte = (start + lane * stride) * itemsize
        sector = first_byte // 32
        if sector in hits:
            hits[sector] = hits[sector] + 1
        else:
            hits[sector] = 1
    return len(hits)


def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    moved = count(start, stride, itemsize)
    best = count(0, 1, itemsize)
    return moved, moved <= best
