# kind: right
# what: a ledger: one entry for each load and store of the loops, with the blocks' true lengths; summed at the end
# shows: "a formula or a loop over the blocks"; short blocks count what they have; two ints
"""ex07_traffic_fa1 · predict the traffic of FlashAttention-1

Chapter 07 · difficulty 3 of 5 · 20 minutes

How many elements does FA1 move? Key blocks outside, query blocks inside:

    write O = 0, l = 0, m = −∞ to HBM
    for each key block j:                          at most B_c keys
        read K_j, V_j
        for each query block i:                    at most B_r queries
            read Q_i, O_i, l_i, m_i
            write O_i, l_i, m_i, and in the last key step L_i

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   O (N_q, d_v)   l, m, L (N_q,)

A formula or a loop over the blocks: either is held against the memory model, which counts what flashlab.rungs.fa1.fa1_forward
moves, at sizes you have not seen. Blocks may be short: T_c = ⌈N_k / B_c⌉ and T_r = ⌈N_q / B_r⌉.
No size is 0.

Not allowed: measuring it (flashlab.rungs), the finished function from flashlab.cost or solutions/.

Hint: per key block the whole of Q passes by, whatever B_r is. How many key blocks are there?
"""

from collections import Counter


def blocks(N, B):
    """Lengths of the blocks: B, B, ..., and what is left."""
    return [min(B, N - start) for start in range(0, N, B)]


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    read, written = Counter(), Counter()

    # write O = 0, l = 0, m = -inf
    written["O"] += N_q * d_v
    written["l"] += N_q
    written["m"] += N_q

    key_blocks = blocks(N_k, B_c)
    for j, n_keys in enumerate(key_blocks):
        read["K"] += n_keys * d
        read["V"] += n_keys * d_v
        is_last = j == len(key_blocks) - 1
        for n_queries in blocks(N_q, B_r):
            read["Q"] += n_queries * d
            for ledger in (read, written):               # there and back
                ledger["O"] += n_queries * d_v
                ledger["l"] += n_queries
                ledger["m"] += n_queries
            if is_last:
                written["L"] += n_queries

    return sum(read.values()), sum(written.values())
