# kind: one mistake
# what: int(a / b) truncates towards 0 like C's division: where the last query sees no key and is less than B_c rows away from the first one that does, visited becomes 1 in place of 0
# shows: N_q > N_k, a block of queries whose last one sees the keys up to -1 ... -(B_c - 1)
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


def idiv(a, b):
    return int(a / b)


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    shift = N_k - N_q
    q0 = i * B_r
    q1 = min(q0 + B_r - 1, N_q - 1)

    visited = max(0, idiv(q1 + shift, B_c) + 1)

    seen_by_all = max(0, q0 + shift + 1)
    full = idiv(seen_by_all, B_c)
    if seen_by_all == N_k:                       # even a short last block is seen whole
        full = visited
    return full, visited
