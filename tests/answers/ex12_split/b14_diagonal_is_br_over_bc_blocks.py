# kind: one mistake
# what: causal: the masked loop is taken to be the last ceil(B_r / B_c) blocks before end; the diagonal may cut one more, and the last may be short
# shows: B_c does not line up with the diagonal, e.g. loops(0, 8, 10, 4, 4, True): (1, 2) instead of (0, 2)

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
    if not causal:
        return N_k // B_c, cdiv(N_k, B_c)

    stop = min((i + 1) * B_r, N_q)                  # one behind the last query
    seen = max(0, stop + N_k - N_q)                 # keys that the last query sees
    end = cdiv(seen, B_c)
    on_diagonal = cdiv(B_r, B_c)                    # as many key blocks as a query block is long
    return max(0, end - on_diagonal), end
