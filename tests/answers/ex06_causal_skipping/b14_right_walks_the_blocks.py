# kind: right
# what: goes through the key blocks one by one and compares their first and last key with what the first and last query see
# shows: last block of queries and of keys cut off at N_q and N_k; nothing is seen where N_q > N_k and the rows lie above the keys
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
    near = first_query + N_k - N_q              # last key that the first query sees; below 0: none
    far = last_query + N_k - N_q                # last key that the last query sees

    full = 0
    visited = 0
    key = 0
    while key < N_k:
        last_key = min(key + B_c, N_k) - 1
        if key <= far:
            visited += 1
        if last_key <= near:
            full += 1
        key += B_c
    return full, visited
