# kind: one mistake
# what: int(x / B_c) rounds towards zero, so a block that sees nothing (last key -1 ... -(B_c-1)) is told to visit block 0; it should be floor division
# shows: N_q > N_k, a query block that sees no key but ends less than B_c before the first one that does: i=0, N_q=8, N_k=5, B_r=2, B_c=4 gives visited 1 instead of 0

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
    s = N_k - N_q
    a = i * B_r + s                                        # last key of the first query
    b = min(i * B_r + B_r, N_q) - 1 + s                    # ... of the last one
    v = max(0, int(b / B_c) + 1)
    f = v if a >= N_k - 1 else max(0, int((a + 1) / B_c))
    return f, v
