# kind: one mistake
# what: takes keys of a lower rank only for step < rank; in step == rank they are rank 0's, which is lower, too: it should be step <= rank
# shows: step == rank >= 1: rank 1 of 2 in step 1 says [(2, 0), (2, 3)], it should be [(1, 0), (2, 0)]
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
    front, back = rank, 2 * world - 1 - rank
    src = (rank - step) % world
    k_front, k_back = src, 2 * world - 1 - src

    if step == 0:
        return [(front, k_front, True), (back, k_front, False), (back, k_back, True)]
    if step < rank:
        # keys from before me: all my queries see their front half
        return [(front, k_front, False), (back, k_front, False)]
    # keys that came round the end of the ring: only my back half sees them, but all of them
    return [(back, k_front, False), (back, k_back, False)]
