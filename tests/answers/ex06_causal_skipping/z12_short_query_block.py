# kind: one mistake
# what: the last query is taken to be (i+1)·B_r − 1 also in a short last block, where it is N_q − 1; visited runs past the key blocks there are
# shows: a last query block that is short by enough to reach another key block: N_q = N_k = 5, B_r = 4, B_c = 2, i = 1 gives 4 of 3 blocks
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
    row_start = i * B_r
    row_end = row_start + B_r - 1

    limit_first = row_start + shift       # last key that the first query sees
    limit_last = row_end + shift

    visited = max(0, limit_last // B_c + 1)
    full = max(0, (limit_first + 1) // B_c)
    if limit_first + 1 >= N_k:
        full = -(-N_k // B_c)
    return full, visited
