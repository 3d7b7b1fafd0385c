# kind: right
# what: number of keys that the first and the last query see, clamped, then blocks; a short last block is whole when all N_k keys are seen
# shows: no mask tensor; N_q > N_k is clamped at 0, short blocks on both sides are looked after
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
    offset = N_k - N_q
    lo = i * B_r
    hi = min(lo + B_r, N_q)

    seen_by_first = max(0, lo + 1 + offset)
    seen_by_last = max(0, hi + offset)

    visited = (seen_by_last + B_c - 1) // B_c
    full = visited if seen_by_first == N_k else seen_by_first // B_c
    return full, visited
