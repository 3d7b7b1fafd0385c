"""ex14_zigzag · who computes what, zig-zag

Chapter 14 · difficulty 3 of 5 · 20 minutes

A causal sequence is cut into 2R chunks of equal length, 0, 1, ... 2R − 1, for R ranks. Dealt out zig-zag, rank r owns
two of them: chunk r, counted from the front, and the one that is as far from the end as chunk r is from the front.

In step 0 every rank holds its own keys and values. After each step a rank passes what it holds to the next higher rank,
the last one to rank 0. So in step t a rank holds the two chunks of keys that another rank owns.

Return what a rank computes in a step: a list of (query chunk, key chunk, masked). A query chunk meets a key chunk only
if some query of it sees some key of that: a query sees its own place and what comes before. masked is True where some
query of the chunk does not see all of the keys, so that a mask is needed, else False. The order within the list is
free.

    rank 0 ... R − 1, step 0 ... R − 1, world = R   ->   [(query chunk, key chunk, masked), ...]

Not allowed: the finished function from flashlab or solutions/.

Hint: whose block does rank r hold in step 1? Whose in step t?
"""


def work(rank, step, world):
    """The pairs of chunks that a rank computes in a step: [(query chunk, key chunk, masked), ...]."""
    # your turn: the two chunks of queries, the two of keys that have arrived, which pairs see each other
    raise NotImplementedError("ex14_zigzag: the two chunks of queries, the two of keys that have arrived, which pairs see each other")
