# kind: one mistake
# what: full = seen keys // B_c, so a short last key block that the first query sees whole is not counted
# shows: B_c does not divide N_k and the block's first query sees all keys (one query in the last block), e.g. i=0, N_q=1, N_k=5, B_r=1, B_c=4: (2, 2), this gives (1, 2)
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
    shift = N_k - N_q
    first = i * B_r
    last = min((i + 1) * B_r, N_q) - 1

    seen_by_first = max(0, first + shift + 1)
    seen_by_last = max(0, last + shift + 1)
    full = seen_by_first // B_c
    visited = (seen_by_last + B_c - 1) // B_c
    return full, visited
