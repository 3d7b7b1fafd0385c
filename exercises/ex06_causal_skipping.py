"""ex06_causal_skipping · which key blocks a causal query block visits

Chapter 06 · difficulty 3 of 5 · 20 minutes

With a causal mask, a query block does not need every key block. Query block i holds the queries i·B_r up to
(i+1)·B_r − 1; the last block may be short. Query n sees the keys 0 to n + N_k − N_q, so the last query sees all keys.

    visited   how many key blocks j = 0, 1, ... hold a key that some query of block i sees; all later ones are skipped
    full      how many of these are seen completely by every query of the block: they need no mask

The blocks from full to visited − 1 cross the diagonal. A key block has B_c keys; the last one may be short.
i counts from 0 and is a block that exists; no size is 0.

Not allowed: the mask as a tensor, the finished function from flashlab or solutions/.

Hint: the block's last query decides visited, its first query decides full.
"""


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    # your turn: full and visited
    raise NotImplementedError("ex06_causal_skipping: full and visited")
