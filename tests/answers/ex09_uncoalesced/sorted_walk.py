# kind: right
# what: walks the lanes in order (addresses are monotonic), counts changes; the best is itemsize sectors
"""ex09_uncoalesced · spot the uncoalesced access"""


import itertools


def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    lanes = range(32)
    shift = {2: 4, 4: 3, 8: 2}[itemsize]                      # elements per sector: 16, 8, 4
    sectors = [(start + stride * n) >> shift for n in lanes]
    moved = 1 + sum(a != b for a, b in itertools.pairwise(sectors))
    return moved, not moved > itemsize                        # 32 lanes * itemsize bytes / 32 bytes
