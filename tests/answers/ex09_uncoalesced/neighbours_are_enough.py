# kind: one mistake
# what: coalesced is decided by the stride alone: neighbours, or all the same
# shows: stride ±1 from a start that is not at a sector's edge: one sector more than the best, so not coalesced, but True
"""ex09_uncoalesced · spot the uncoalesced access"""


def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    touched = {(start + n * stride) * itemsize // 32 for n in range(32)}
    coalesced = abs(stride) <= 1
    return len(touched), coalesced
