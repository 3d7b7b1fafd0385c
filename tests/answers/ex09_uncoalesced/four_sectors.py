# kind: one mistake
# what: the best is always 4 sectors, as in float32
# shows: itemsize 8: 5 to 8 sectors are coalesced, says False; itemsize 2: 3 or 4 sectors are too many, says True
"""ex09_uncoalesced · spot the uncoalesced access"""


SECTOR = 32
WARP = 32


def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    sectors = len(set((start + lane * stride) * itemsize // SECTOR for lane in range(WARP)))
    return sectors, sectors <= 4
