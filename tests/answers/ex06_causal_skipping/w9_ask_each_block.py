# kind: right
# what: asks each key block two questions and counts the yes: does the last query see its first key, does the first query see its last key
# shows: whole numbers only, short blocks by min(), no mask; the yes come first, since a later block is harder to see
"""ex06_causal_skipping · which key blocks a causal query block visits

Chapter 06 · difficulty 3 of 5 · 20 minutes

With a causal mask, query block i (queries i·B_r up to (i+1)·B_r − 1, the last block may be short) does not need every key
block. Query n sees the keys 0 to n + N_k − N_q: the last query is lined up with the last key.

    visited   how many key blocks j = 0, 1, ... hold a key that some query of block i sees. All later ones are skipped
    full      how many of them are seen whole by every query of the block: those need no mask

The blocks from full to visited − 1 cross the diagonal. Blocks of keys have B_c keys, the last one may be short.

Not allowed: the mask as a tensor, the finished function from flashlab or solutions/.

Hint: the block's last query decides visited, its first query decides full.
"""


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""

    def sees(query, key):
        return key <= query + N_k - N_q

    first_query = i * B_r
    last_query = min(first_query + B_r, N_q) - 1
    full = visited = 0
    for first_key in range(0, N_k, B_c):
        last_key = min(first_key + B_c, N_k) - 1
        if not sees(last_query, first_key):
            break
        visited += 1
        if sees(first_query, last_key):
            full += 1
    return full, visited
