# kind: one mistake
# what: forgets that queries may see no key at all: with N_q > N_k the numbers of seen keys are negative and not raised to 0
# shows: N_q > N_k, the early query blocks, e.g. i=0, N_q=8, N_k=2, B_r=2, B_c=2: (0, 0), this gives (-3, -2)
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

import math


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    offset = N_k - N_q
    start, stop = i * B_r, min(i * B_r + B_r, N_q)
    n_blocks = math.ceil(N_k / B_c)

    visible_to_last = stop + offset                # keys 0 ... stop - 1 + offset
    visible_to_first = start + 1 + offset
    visited = math.ceil(visible_to_last / B_c)
    full = n_blocks if visible_to_first == N_k else visible_to_first // B_c
    return full, visited
