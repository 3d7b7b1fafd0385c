# kind: right
# what: goes through all key blocks and counts those whose first key the last query sees, and those whose last key the first query sees
# shows: within the contract: N_q != N_k both ways, short last blocks of both kinds, queries before the first key; no tensor
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
    seen_by_first = first_query + N_k - N_q        # number of the last key it sees, negative: none
    seen_by_last = last_query + N_k - N_q

    full = visited = 0
    for start in range(0, N_k, B_c):
        end = min(start + B_c, N_k) - 1
        if start <= seen_by_last:
            visited += 1
        if end <= seen_by_first:
            full += 1
    return full, visited
