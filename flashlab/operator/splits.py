"""How many chunks to cut the keys of a head into: plain Python, for launchers and for lessons."""

from functools import lru_cache

START = 2                              # begin a program and store its partial result: as long as two tiles, about
MOST = 256                             # to merge more partial results takes noticeable time


@lru_cache(4096)
def choose_splits(programs, tiles, at_a_time):
    """The number of chunks that takes least time by a simple model; the smallest of equals, with least to merge.

    programs:  how many there would be without splitting, B · H_kv · T_r
    tiles:     key tiles that the longest program walks
    at_a_time: how many programs the GPU runs at a time
    The model: programs · splits run in waves of at_a_time, and a wave takes as long as its longest chunk, ceil(tiles /
               splits) tiles, and START. So one program on an idle GPU is cut up until every SM has a chunk, programs
               that fill the GPU stay whole, and a number that would leave a last wave nearly empty is passed over
    """
    def time(splits):
        waves = -(-programs * splits // at_a_time)
        return waves * (-(-tiles // splits) + START)

    return min(range(1, max(1, min(tiles, MOST)) + 1), key=time)
