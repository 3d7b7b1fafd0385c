# kind: one mistake
# what: == where at most is meant
# shows: loads that move fewer sectors than stride 1 does: stride 0 gives False
"""ex09_uncoalesced · spot the uncoalesced access"""


def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    def moved(begin, step):
        return len({(begin + lane * step) * itemsize // 32 for lane in range(32)})

    sectors = moved(start, stride)
    return sectors, sectors == moved(0, 1)
