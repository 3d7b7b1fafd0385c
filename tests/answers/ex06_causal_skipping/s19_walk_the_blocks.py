# kind: right
# what: no formula: walks over the key blocks, notes first and last key of each and compares them with what the first and last query see
# shows: whole numbers only, no mask as a tensor; a short last key block counts as full if all the keys that it has are seen

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


def last_key_seen(n, N_q, N_k):
    """The number of the last key that query n sees; negative if there is none."""
    return n + N_k - N_q


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    first_query = i * B_r
    last_query = first_query + B_r - 1
    if last_query > N_q - 1:
        last_query = N_q - 1

    all_see = last_key_seen(first_query, N_q, N_k)
    some_see = last_key_seen(last_query, N_q, N_k)

    full = 0
    visited = 0
    begin = 0
    while begin < N_k:
        end = begin + B_c - 1
        if end > N_k - 1:
            end = N_k - 1
        if begin > some_see:
            break
        visited += 1
        if end <= all_see:
            full += 1
        begin += B_c
    return full, visited
