# kind: one mistake
# what: the number of the last visible key's block is int(key / B_c), which rounds a negative key up to block 0 as C does; it should round down (//), or be 0 blocks where no key is visible
# shows: N_k < N_q and a query block whose last query would see key -1 to -(B_c - 1): visited 1 instead of 0
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
    n_first = i * B_r
    n_last = min(n_first + B_r, N_q) - 1
    offset = N_k - N_q

    last_key = n_last + offset
    visited = int(last_key / B_c) + 1               # the block of the last visible key, and all before it
    visited = max(visited, 0)

    full = 0
    while full < visited and min((full + 1) * B_c, N_k) - 1 <= n_first + offset:
        full += 1
    return full, visited
