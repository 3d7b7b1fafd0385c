"""ex09_uncoalesced · spot the uncoalesced access

Chapter 09 · difficulty 2 of 5 · 20 minutes

Memory moves in sectors of 32 bytes. Lane n of a warp, n = 0 ... 31, reads the element number `start + n · stride` of a tensor
whose elements have `itemsize` bytes and whose first element lies at a multiple of 32 bytes. Say

    sectors      how many sectors this one load moves
    coalesced    True if no sector more is moved than the same 32 lanes would need for the closest packing, 32 · itemsize bytes
                 in a row from a multiple of 32 on, or for what they share; False otherwise

stride 0 means that all lanes read the same element. A negative stride walks backwards. Examples: float32, start 0, stride 1:
4 sectors, coalesced. Stride 2: 8 sectors, not coalesced. Stride 0: 1 sector, coalesced.

Hint: which byte does lane n read first, and in which sector is it? Different lanes may share one.
"""


def load(start, stride, itemsize):
    """(sectors, coalesced) of one warp's load."""
    # your turn: the sectors that 32 lanes touch, and whether that is as few as it can be
    raise NotImplementedError("ex09_uncoalesced: the sectors that 32 lanes touch, and whether that is as few as it can be")
