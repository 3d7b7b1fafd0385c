# kind: right
# what: the way one does it in C: two arrays, two loops, look every sector up in the ones seen so far; the best case by a call of itself
# shows: within the contract for every start, stride (0 and negative too) and itemsize; results are int and bool
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

WARP = 32
SECTOR_BYTES = 32


def count_sectors(start, stride, itemsize):
    seen = [0] * WARP
    num_seen = 0
    lane = 0
    while lane < WARP:
        element = start + lane * stride
        byte = element * itemsize
        sector = (byte - byte % SECTOR_BYTES) // SECTOR_BYTES
        found = False
        for k in range(num_seen):
            if seen[k] == sector:
                found = True
                break
        if not found:
            seen[num_seen] = sector
            num_seen += 1
        lane += 1
    return num_seen


def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    moved = count_sectors(start, stride, itemsize)
    ideal = count_sectors(0, 1, itemsize)
    if moved > ideal:
        return moved, False
    return moved, True
