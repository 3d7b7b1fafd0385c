# kind: one mistake
# what: coalesced = abs(stride) == 1 (or 0) whatever the alignment
# shows: start not aligned: e.g. start 1, stride 1
"""ex09_uncoalesced: my answer."""

def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    s = {(start + n * stride) * itemsize // 32 for n in range(32)}
    return len(s), abs(stride) <= 1
