# kind: point missed
# what: the numbers are right, but they are counted in a causal mask of N_q by N_k elements, which the stub forbids
# shows: a tensor of N_q·N_k elements is made
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

import torch


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    visible = torch.ones(N_q, N_k, dtype=torch.bool).tril(N_k - N_q)
    block = visible[i * B_r : (i + 1) * B_r]
    parts = block.split(B_c, dim=1)
    visited = sum(bool(part.any()) for part in parts)
    full = sum(bool(part.all()) for part in parts)
    return full, visited
