# kind: one mistake
# what: full is (first query's last key) // B_c, the block that key lies in: its index is taken for a count; should be (last key + 1) // B_c
# shows: where the first query's last key is the last one of a block, e.g. B_c = 1, or N_k − N_q = 3 with B_c = 4 and i = 0
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
    all_blocks = -(-N_k // B_c)
    n_first = i * B_r
    n_last = min((i + 1) * B_r, N_q) - 1

    visited = (n_last + shift) // B_c + 1                  # the block of its last key, and all before
    visited = max(0, min(visited, all_blocks))

    if n_first + shift >= N_k - 1:
        full = all_blocks
    else:
        full = max(0, (n_first + shift) // B_c)
    return full, visited
