# kind: one mistake
# what: the first query's last key first + N_k − N_q is taken for the number of keys that it sees, which is one more; so a block that ends just there is not whole
# shows: causal, first + 1 + N_k − N_q a multiple of B_c, e.g. N_q = N_k = 4, B_r = 1, B_c = 2, i = 1: whole is 0 in place of 1

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


def loops(i, N_q, N_k, B_r, B_c, causal):
    """(whole, end) for query block i, two whole numbers with 0 ≤ whole ≤ end ≤ ⌈N_k / B_c⌉."""
    if causal:
        first_sees = i * B_r + N_k - N_q
        last_sees = min(i * B_r + B_r, N_q) + N_k - N_q
    else:
        first_sees = last_sees = N_k
    first_sees = max(first_sees, 0)
    last_sees = max(last_sees, 0)
    return first_sees // B_c, -(-last_sees // B_c)
