# kind: one mistake
# what: takes the number of masked blocks to be ceil(B_r / B_c) behind the whole ones; where the diagonal is not at the edge of a block it crosses one more: end should come from the last query's keys
# shows: causal, where N_k - N_q is no multiple of B_c: loops(0, 8, 9, 4, 4, True) gives (0, 1), it should be (0, 2); at the edge of a block it may be one too many: loops(0, 2, 2, 1, 1, True) gives (1, 2), not (1, 1)
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


def cdiv(a, b):
    return (a + b - 1) // b


def loops(i, N_q, N_k, B_r, B_c, causal):
    """(whole, end) for query block i, two whole numbers with 0 ≤ whole ≤ end ≤ ⌈N_k / B_c⌉."""
    blocks = cdiv(N_k, B_c)
    if not causal:
        return N_k // B_c, blocks

    seen_by_first = i * B_r + N_k - N_q + 1
    seen_by_last = min(i * B_r + B_r, N_q) + N_k - N_q
    if seen_by_last <= 0:
        return 0, 0
    whole = max(seen_by_first, 0) // B_c
    masking_steps = cdiv(B_r, B_c)          # blocks that the diagonal of a B_r x B_c tile crosses
    return whole, min(whole + masking_steps, blocks)
