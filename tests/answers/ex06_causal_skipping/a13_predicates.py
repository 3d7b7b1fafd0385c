# kind: right
# what: says what a block is (its first and last key) and what the first and last query see, then counts blocks with two predicates in plain Python
# shows: no tensor at all; short last blocks are clipped with min on both sides, negative reach (a query without keys) fails both predicates by itself
"""ex06_causal_skipping · which key blocks a causal query block visits

Chapter 06 · difficulty 3 of 5 · 20 minutes

With a causal mask, query block i (queries i·B_r up to (i+1)·B_r − 1, the last block may be short) does not need every key
block. Query n sees the keys 0 to n + N_k − N_q: the last query is lined up with the last key.

    visited   how many key blocks j = 0, 1, ... hold a key that some query of block i sees. All later ones are skipped
    full      how many of them are seen whole by every query of the block: those need no mask

The blocks from full to visited − 1 cross the diagonal. Blocks of keys have B_c keys, the last one may be short.
i counts from 0 and is a block that exists; no size is 0.

Not allowed: the mask as a tensor, the finished function from flashlab or solutions/.

Hint: the block's last query decides visited, its first query decides full.
"""

def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    first_query = i * B_r
    last_query = min(first_query + B_r, N_q) - 1

    def last_key_seen_by(query):
        return query + N_k - N_q                     # below 0: it sees nothing

    def some_query_sees(start):
        return start <= last_key_seen_by(last_query)

    def every_query_sees_all_of(start):
        stop = min(start + B_c, N_k)
        return stop - 1 <= last_key_seen_by(first_query)

    starts = range(0, N_k, B_c)
    full = sum(map(every_query_sees_all_of, starts))
    visited = sum(map(some_query_sees, starts))
    return full, visited
