# kind: one mistake
# what: full is the number of whole B_c blocks up to the first query's last key; a short last key block that is seen whole is not counted (case of the stub: the last one may be short)
# shows: a block of one query, the last one (B_r = 1 or N_q % B_r == 1), and N_k no multiple of B_c: i=2, N_q=3, N_k=5, B_r=1, B_c=4 gives full 1 instead of 2

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


def clamp(value, low, high):
    return max(low, min(value, high))


def first_query_of(i, B_r):
    return i * B_r


def last_query_of(i, B_r, N_q):
    return clamp((i + 1) * B_r - 1, 0, N_q - 1)


def number_of_visible_keys(query, N_q, N_k):
    return clamp(query + N_k - N_q + 1, 0, N_k)


def blocks_touched(keys, B_c):
    return -(-keys // B_c)


def blocks_completed(keys, B_c):
    return keys // B_c


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    most = number_of_visible_keys(last_query_of(i, B_r, N_q), N_q, N_k)
    fewest = number_of_visible_keys(first_query_of(i, B_r), N_q, N_k)
    return blocks_completed(fewest, B_c), blocks_touched(most, B_c)
