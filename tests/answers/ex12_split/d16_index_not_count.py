# kind: one mistake
# what: divides the index of the first query's last key by B_c for `whole`, where it should be the number of keys that it sees (one more)
# shows: causal, where the first query of the block sees a multiple of B_c keys: i=1, N_q=N_k=8, B_r=3, B_c=4 gives whole 0, it should be 1
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
    n_blocks = -(-N_k // B_c)
    if causal:
        offset = N_k - N_q
        q_first = i * B_r
        q_last = min((i + 1) * B_r, N_q) - 1
        diag_first = q_first + offset       # where the diagonal enters the query block
        diag_last = q_last + offset         # and where it leaves
        whole = max(0, diag_first) // B_c
        end = max(0, diag_last + B_c) // B_c
        return whole, min(end, n_blocks)
    return N_k // B_c, n_blocks
