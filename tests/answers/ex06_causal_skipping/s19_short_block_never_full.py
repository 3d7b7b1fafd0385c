# kind: one mistake
# what: full is keys // B_c, which never counts a short last key block; it is full if every query sees all the keys that it has
# shows: N_k no multiple of B_c, and the block's only query is the last one (B_r = 1, or N_q = k·B_r + 1): full is one too small

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
    def keys_seen(query):
        return max(0, min(N_k, query + 1 + N_k - N_q))

    first, last = i * B_r, min((i + 1) * B_r, N_q) - 1
    visited = (keys_seen(last) + B_c - 1) // B_c
    full = keys_seen(first) // B_c
    return full, visited
