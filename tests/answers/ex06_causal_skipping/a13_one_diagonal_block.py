# kind: one mistake
# what: full = visited - 1, as if exactly one block crossed the diagonal; full must come from the block's first query
# shows: B_r larger than B_c or not lined up with it (several blocks cross), and blocks that no mask is needed for although they are the last visited (B_r = 1, B_c = 1)
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
    last_query = min((i + 1) * B_r, N_q) - 1
    keys_seen = max(0, last_query + N_k - N_q + 1)
    visited = -(-keys_seen // B_c)

    # the last one visited is the one on the diagonal
    full = max(0, visited - 1)
    return full, visited
