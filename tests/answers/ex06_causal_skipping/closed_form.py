# kind: right
# what: two divisions: the keys that the last query sees, rounded up to blocks, and those of the first query, rounded down unless they are all
# shows: counts of keys are at least 0; a short last block is full when the first query sees every key

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


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    ceil = lambda n: (n + B_c - 1) // B_c
    end = min((i + 1) * B_r, N_q)
    most = max(0, N_k - N_q + end)
    least = max(0, N_k - N_q + i * B_r + 1)
    return (ceil(N_k) if least == N_k else least // B_c), ceil(most)
