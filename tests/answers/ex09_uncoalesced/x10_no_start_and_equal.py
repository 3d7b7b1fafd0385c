# kind: two mistakes
# what: (1) start is left out, since the tensor is aligned; but an odd start spreads the load over one sector more; (2) coalesced is "exactly as many as stride 1", so fewer sectors count as not coalesced
# shows: (1) start 3, stride 1, float32: 5 sectors; (2) stride 0: 1 sector, coalesced
"""ex09_uncoalesced · spot the uncoalesced access

Chapter 09 · difficulty 2 of 5 · 20 minutes

Memory moves in sectors of 32 bytes. Lane n of a warp, n = 0 ... 31, reads the element number `start + n · stride` of a tensor
whose elements have `itemsize` bytes and whose first element lies at a multiple of 32 bytes. Say

    sectors      how many sectors this one load moves: a whole sector for every one in which some lane has its element
    coalesced    True if they are no more than a load with start 0 and stride 1 would move for the same itemsize, False if more

itemsize is 2, 4 or 8, so no element lies in two sectors. Several lanes may read from one sector, which then moves once.
stride 0 means that all lanes read the same element; a negative stride walks backwards, and never to before element 0.
Examples in float32: start 0, stride 1: 4 sectors, coalesced. Stride 2: 8 sectors, not coalesced. Stride 0: 1 sector,
coalesced, since fewer is as good. The results are an int and a bool.

Not allowed: launching it (flashlab_course.gpu), the finished function from solutions/.

Hint: which byte does lane n read first, and in which sector is it?
"""


def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    first_bytes = [abs(stride) * itemsize * n for n in range(32)]
    sectors = len(set(b // 32 for b in first_bytes))
    return sectors, sectors == itemsize
