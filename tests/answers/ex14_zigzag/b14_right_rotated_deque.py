# kind: right
# what: deals the chunks out, turns the ring `step` times as a deque, compares chunk numbers
# shows: a key chunk is seen if it is not later than the query chunk, and needs a mask if it is the same

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

from collections import deque
from itertools import product


def work(rank, step, world):
    """The pairs of chunks that a rank computes in a step: [(query chunk, key chunk, masked), ...]."""
    chunks = list(range(2 * world))
    hands = [(chunks[r], chunks[-1 - r]) for r in range(world)]
    ring = deque(hands)
    ring.rotate(step)                                   # everybody hands on to the next higher rank
    return [(q, k, q == k) for q, k in product(hands[rank], ring[rank]) if k <= q]
