"""ex12_dq_order · the order in which a program adds to dQ

Chapter 12 · difficulty 2 of 5 · 10 minutes

In a backward pass of one kernel, program j owns key block j: keys j·B_c up to (j+1)·B_c − 1. It visits the query blocks
that see any of its keys, and adds a part to dQ_i at each. Query block i has the queries i·B_r up to (i+1)·B_r − 1; the
last block may be short, and so may the last key block. Return the numbers i in the order of the visits:

    causal=True     query n sees the keys 0 to n + N_k − N_q: the last query lines up with the last key. The visits go
                    up, from the first query block that sees a key of block j to the last query block
    causal=False    every query block sees the keys. Programs start together, so each begins at another tile: program j
                    at query block j. The visits go up to the last query block, on to query block 0, and up again to
                    block j − 1. If there are fewer query blocks than j, the count goes round as often as it takes

N_q, N_k, B_r and B_c are at least 1, and key block j has at least one key. Example: N_q = N_k = 64, B_r = B_c = 16,
j = 2 gives [2, 3] under the mask and [2, 3, 0, 1] without it.

Not allowed: the mask as a tensor, the finished function from flashlab or solutions/.

Hint: which query is the first to see key j·B_c, the first key of the block?
"""


def dq_order(j, N_q, N_k, B_r, B_c, causal):
    """The query blocks that program j adds to, a list of whole numbers."""
    # >>> your turn: the number of query blocks, the first one that is visited, the order
    T_r = -(-N_q // B_r)
    if causal:
        first = max(0, j * B_c + N_q - N_k) // B_r
        return list(range(first, T_r))
    return [(j + step) % T_r for step in range(T_r)]
    # <<<
