# kind: right
# what: walks the key blocks one by one and asks two small questions of each; nothing closed-form
# shows: counts only blocks 0..T_c-1, short last blocks of queries and of keys included, no mask tensor
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


def last_key_of(n, N_q, N_k):
    """The last key that query n sees; negative if it sees none."""
    return n + N_k - N_q


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    first_query = i * B_r
    last_query = first_query + B_r - 1
    if last_query > N_q - 1:
        last_query = N_q - 1

    full = 0
    visited = 0
    key = 0
    while key < N_k:
        end = key + B_c
        if end > N_k:
            end = N_k
        if key <= last_key_of(last_query, N_q, N_k):
            visited += 1
        if end - 1 <= last_key_of(first_query, N_q, N_k):
            full += 1
        key = end
    return full, visited
