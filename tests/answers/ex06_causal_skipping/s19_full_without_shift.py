# kind: one mistake
# what: the shift N_k − N_q is in visited only; full is computed as if query n saw the keys 0 to n (first + 1 in place of first + 1 + N_k − N_q)
# shows: N_q ≠ N_k, e.g. N_q = 4, N_k = 16, B_r = 4, B_c = 4: full is 0 in place of 3

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
    first = i * B_r
    last = min(first + B_r, N_q) - 1
    T_c = -(-N_k // B_c)

    keys = max(last + (N_k - N_q) + 1, 0)        # of the last query
    visited = -(-keys // B_c)

    full = (first + 1) // B_c                    # of the first query
    if first + 1 >= N_k:
        full = T_c                               # the short block, too
    return min(full, visited), visited
