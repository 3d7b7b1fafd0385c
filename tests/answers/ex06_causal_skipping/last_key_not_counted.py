# kind: one mistake
# what: visited rounds up the index of the last key seen instead of the number of keys seen (index + 1)
# shows: the last key seen is the first of its block (index a multiple of B_c), e.g. B_r = B_c = 1, or N_q = N_k = 1: visited 0 instead of 1

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


def ceil_div(a, b):
    return -(-a // b)


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    n_first, n_last = i * B_r, min((i + 1) * B_r, N_q) - 1
    limit_first = n_first + N_k - N_q          # last key the first query sees
    limit_last = n_last + N_k - N_q            # last key the last query sees
    blocks = ceil_div(N_k, B_c)
    visited = max(0, min(blocks, ceil_div(limit_last, B_c)))
    if limit_first >= N_k - 1:
        full = blocks
    else:
        full = max(0, (limit_first + 1) // B_c)
    return min(full, visited), visited
