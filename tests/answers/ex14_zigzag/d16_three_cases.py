# kind: right
# what: no comparing of chunks: three cases by whose block it is, own, of a lower rank, of a higher rank, with their pairs written out
# shows: a lower rank's first chunk is seen by both query chunks, its second by none; both chunks of a higher rank are seen by the late query chunk alone
"""ex14_zigzag · who computes what, zig-zag

Chapter 14 · difficulty 3 of 5 · 20 minutes

A causal sequence is cut into 2R chunks of equal length, 0, 1, ... 2R − 1, for R ranks. Dealt out zig-zag, rank r owns two of
them: chunk r, counted from the front, and the one that is as far from the end as chunk r is from the front.

In step 0 every rank holds its own keys and values. After each step a rank passes what it holds to the next higher rank, the last
one to rank 0. So in step t a rank holds the two chunks of keys that another rank owns.

Return what a rank computes in a step: a list of (query chunk, key chunk, masked). A query chunk meets a key chunk only if some
query of it sees some key of that: a query sees its own place and what comes before. masked is True where some query of the chunk
does not see all of the keys, so that a mask is needed, else False. The order within the list is free.

    rank 0 ... R − 1, step 0 ... R − 1, world = R   ->   [(query chunk, key chunk, masked), ...]

Not allowed: the finished function from flashlab or solutions/.

Hint: whose block does rank r hold in step 1? Whose in step t?
"""


def work(rank, step, world):
    """The pairs of chunks that a rank computes in a step: [(query chunk, key chunk, masked), ...]."""
    last = 2 * world - 1
    early, late = rank, last - rank                            # my queries
    owner = (rank - step) % world                              # whose keys have arrived
    k_early, k_late = owner, last - owner

    if owner == rank:
        return [(early, k_early, True), (late, k_early, False), (late, k_late, True)]
    if owner < rank:
        return [(early, k_early, False), (late, k_early, False)]
    return [(late, k_early, False), (late, k_late, False)]
