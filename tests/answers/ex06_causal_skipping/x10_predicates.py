# kind: right
# what: web developer's way: small predicates about a query block and a key block, counted over all key blocks
# shows: within the contract: short blocks end at N_q and N_k, blocks that see nothing give (0, 0); no mask, no tensor

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


def get_range(index, block_size, total):
    """First and last element of a block, both included."""
    first = index * block_size
    last = min(first + block_size, total) - 1
    return first, last


def get_block_count(total, block_size):
    return (total + block_size - 1) // block_size


def make_last_visible_key(N_q, N_k):
    offset = N_k - N_q
    return lambda query: query + offset


def is_visited(key_range, query_range, last_visible_key):
    first_key, _ = key_range
    _, last_query = query_range
    return first_key <= last_visible_key(last_query)


def is_full(key_range, query_range, last_visible_key):
    _, last_key = key_range
    first_query, _ = query_range
    return last_key <= last_visible_key(first_query)


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    query_range = get_range(i, B_r, N_q)
    last_visible_key = make_last_visible_key(N_q, N_k)
    key_ranges = [get_range(j, B_c, N_k) for j in range(get_block_count(N_k, B_c))]

    def count(predicate):
        return sum(1 for key_range in key_ranges if predicate(key_range, query_range, last_visible_key))

    return count(is_full), count(is_visited)
