# kind: one mistake
# what: full = keys seen by the first query // B_c, which never counts a short last key block, even where the first query sees all N_k keys; then full is ⌈N_k / B_c⌉
# shows: the last query block has one query and B_c does not divide N_k, e.g. i = 2, N_q = 9, N_k = 10, B_r = 4, B_c = 4: full 2, is 3; also B_r = 1, last block
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
    shift = N_k - N_q
    first = i * B_r
    last = min((i + 1) * B_r, N_q) - 1

    keys_first = max(0, first + shift + 1)     # how many keys the first query sees
    keys_last = max(0, last + shift + 1)       # and the last one

    full = keys_first // B_c
    visited = -(-keys_last // B_c)
    return full, visited
