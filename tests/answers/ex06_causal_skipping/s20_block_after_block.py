# kind: right
# what: walks the key blocks from the first and asks of each whether the last query sees its first key, and whether the first query sees its last
# shows: short blocks of queries and keys are cut by min(); a block that sees nothing gives (0, 0)

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
    first_sees = i * B_r + shift                             # the last key that the block's first query sees
    last_sees = min((i + 1) * B_r, N_q) - 1 + shift          # and its last query
    full = visited = 0
    for start in range(0, N_k, B_c):
        end = min(start + B_c, N_k) - 1
        if start <= last_sees:
            visited += 1
        if end <= first_sees:
            full += 1
    return full, visited
