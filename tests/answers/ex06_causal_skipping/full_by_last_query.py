# kind: one mistake
# what: full is counted with the block's last query (some query sees the block whole), it should be the first (every query does)
# shows: B_r > 1 and a key block that ends between the first and the last query's last key, such as N_q = N_k = 8, B_r = B_c = 4, i = 0: (1, 1) for (0, 1)

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
    last_query = min((i + 1) * B_r, N_q) - 1
    last_key = last_query + (N_k - N_q)
    if last_key < 0:
        return 0, 0
    total = -(-N_k // B_c)
    visited = last_key // B_c + 1
    # a block is seen whole if its last key is not beyond last_key
    full = 0
    for j in range(total):
        end_of_block = min((j + 1) * B_c, N_k) - 1
        if end_of_block > last_key:
            break
        full += 1
    return full, visited
