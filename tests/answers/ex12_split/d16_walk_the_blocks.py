# kind: right
# what: walks the key blocks one by one, asks of each whether the first query sees its last key, and whether the last query sees its first key
# shows: numbers only, no mask; a block that reaches past the last key is never whole, a block whose first key nobody sees ends the walk
"""ex12_split · which key blocks need a mask

Chapter 12 · difficulty 3 of 5 · 20 minutes

A kernel's loop over key blocks is split in two: the first loop has no masks at all, the second has them. The program of query
block i (queries i·B_r up to (i+1)·B_r − 1, the last block may be short) walks

    key blocks 0 up to whole − 1       without masks: every key of the block exists, and every query of block i sees it
    key blocks whole up to end − 1     with masks
    key blocks from end on             not at all: no query of block i sees any of their keys

With causal=True query n sees the keys 0 to n + N_k − N_q: the last query is lined up with the last key. With causal=False it
sees all N_k keys. This is not quite chapter 06's question: a kernel's tile always has B_c rows, so a short last block reaches
past the last key, and needs its mask even where every query sees all of its keys. N_q, N_k, B_r and B_c are at least 1.

Not allowed: the mask as a tensor, the finished function from flashlab or solutions/.

Hint: the block's first query decides whole, its last query decides end. How many keys does each see?
"""


def last_key_seen(n, N_q, N_k, causal):
    """Index of the last key that query n sees; below 0: none."""
    return n + N_k - N_q if causal else N_k - 1


def loops(i, N_q, N_k, B_r, B_c, causal):
    """(whole, end) for query block i, two whole numbers with 0 ≤ whole ≤ end ≤ ⌈N_k / B_c⌉."""
    top = i * B_r
    bottom = min(top + B_r, N_q) - 1
    top_sees = last_key_seen(top, N_q, N_k, causal)          # sees the fewest keys of the block
    bottom_sees = last_key_seen(bottom, N_q, N_k, causal)    # sees the most

    whole = end = 0
    j = 0
    while j * B_c < N_k:
        first_key = j * B_c
        last_place = first_key + B_c - 1                     # may lie behind the last key
        if last_place < N_k and last_place <= top_sees:
            whole = j + 1
        if first_key <= bottom_sees:
            end = j + 1
        j += 1
    return whole, end
