# kind: one mistake
# what: full = keys seen by the first query // B_c never counts a short last key block, even if the first query sees all N_k keys; then full must be ceil(N_k / B_c)
# shows: a query block that holds the last query only (B_r = 1, N_q = 1, or N_q % B_r == 1) with N_k not divisible by B_c
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

def _keys_visible_to(query, N_q, N_k):
    return min(N_k, max(0, query + N_k - N_q + 1))


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    top = i * B_r
    bottom = min(top + B_r - 1, N_q - 1)
    full = _keys_visible_to(top, N_q, N_k) // B_c
    visited = (_keys_visible_to(bottom, N_q, N_k) + B_c - 1) // B_c
    return full, visited
