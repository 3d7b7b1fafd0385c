"""ex09_uncoalesced · spot the uncoalesced access

Chapter 09 · difficulty 2 of 5 · 15 minutes

Memory moves in sectors of 32 bytes. Lane n of a warp, n = 0 ... 31, reads the element number `start + n · stride` of a
tensor whose elements have `itemsize` bytes and whose first element lies at a multiple of 32 bytes. Say

    sectors      how many sectors this one load moves: a whole sector for every one in which some lane has its element
    coalesced    True if they are no more than a load with start 0 and stride 1 would move for the same itemsize, False
                 if more

itemsize is 2, 4 or 8, so no element lies in two sectors. Several lanes may read from one sector, which then moves once.
stride 0 means that all lanes read the same element; a negative stride walks backwards, and never to before element 0.
Examples in float32: start 0, stride 1: 4 sectors, coalesced. Stride 2: 8 sectors, not coalesced. Stride 0: 1 sector,
coalesced, since fewer is as good. The results are an int and a bool.

Not allowed: launching it (flashlab_course.gpu), the finished function from solutions/.

Hint: which byte does lane n read first, and in which sector is it?
"""


def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    # >>> your turn: the sectors that 32 lanes touch, and whether that is as few as it can be
    touched = {(start + n * stride) * itemsize // 32 for n in range(32)}
    return len(touched), len(touched) <= itemsize
    # <<<
