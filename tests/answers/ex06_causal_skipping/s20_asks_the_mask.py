# kind: point missed
# what: the numbers are right, but the mask is made as a tensor of queries by keys and looked at block by block; the exercise wants them from the indices alone
# shows: any inputs: a (B_r, N_k) boolean tensor is built, which is what the stub forbids

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

import torch


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    queries = torch.arange(i * B_r, min((i + 1) * B_r, N_q))
    keys = torch.arange(N_k)
    mask = keys[None, :] <= queries[:, None] + (N_k - N_q)
    parts = mask.split(B_c, dim=1)
    full = sum(1 for part in parts if bool(part.all()))
    visited = sum(1 for part in parts if bool(part.any()))
    return full, visited
