# kind: one mistake
# what: full is (last key the first query sees) // B_c, the number of the block this key lies in; if it is the block's last key, that block is full too. Should be (last key + 1) // B_c
# shows: the first query's last key ends a key block: N_q = N_k = 8, B_r = 1, B_c = 4, i = 3 gives (0, 1) instead of (1, 1)

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
    T_c = -(-N_k // B_c)
    lo = i * B_r + N_k - N_q                              # last key of the first query
    hi = min((i + 1) * B_r, N_q) - 1 + N_k - N_q          # last key of the last query
    if hi < 0:
        return 0, 0
    visited = hi // B_c + 1
    if lo < 0:
        return 0, visited
    if lo == N_k - 1:
        return T_c, visited
    full = lo // B_c
    return full, visited
