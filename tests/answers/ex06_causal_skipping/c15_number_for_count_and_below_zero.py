# kind: two mistakes
# what: (1) full compares the end of a key block, one past its last key, with the number of the last key that the first query sees (end <= number, should be end <= number + 1); (2) visited is not held at 0 where the last query sees no key and goes negative
# shows: (1) first + N_k − N_q + 1 a multiple of B_c and positive, or one query that sees all; (2) N_q > N_k and a block whose last query is so early that last + N_k − N_q < −B_c
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
    T_c = (N_k + B_c - 1) // B_c
    q_first = i * B_r
    q_last = min(q_first + B_r, N_q) - 1
    k_first = q_first + N_k - N_q
    k_last = q_last + N_k - N_q

    # the block of the last visible key, and all before it
    visited = min(k_last // B_c + 1, T_c)

    full = 0
    while full < T_c and min((full + 1) * B_c, N_k) <= k_first:
        full += 1
    return full, visited
