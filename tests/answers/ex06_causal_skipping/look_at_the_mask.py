# kind: point missed
# what: builds the causal mask as a tensor and looks for all() and any() in its tiles: the numbers are right, the tensor is not allowed
# shows: every input: a tensor of N_q by N_k is made
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
    seen = torch.ones(N_q, N_k, dtype=torch.bool).tril(N_k - N_q)
    rows = seen[i * B_r:(i + 1) * B_r]
    blocks = rows.split(B_c, dim=1)
    full = sum(bool(b.all()) for b in blocks)
    visited = sum(bool(b.any()) for b in blocks)
    return full, visited
