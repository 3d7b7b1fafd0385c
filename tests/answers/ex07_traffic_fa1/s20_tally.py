# kind: right
# what: plays the loops and keeps a tally of reads and writes, block by block, with the short blocks' true sizes
# shows: same loops as in the stub; exact for blocks that do not divide and for blocks larger than N

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


def sizes(N, B):
    """The blocks' sizes."""
    out = []
    while N > 0:
        out.append(min(N, B))
        N -= B
    return out


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    reads, writes = 0, 0
    writes += N_q * d_v + N_q + N_q                # O = 0, l = 0, m = -inf
    keys_left = N_k
    for keys in sizes(N_k, B_c):
        keys_left -= keys
        reads += keys * d + keys * d_v             # K_j, V_j
        for queries in sizes(N_q, B_r):
            reads += queries * (d + d_v + 1 + 1)   # Q_i, O_i, l_i, m_i
            writes += queries * (d_v + 1 + 1)      # O_i, l_i, m_i
            if keys_left == 0:
                writes += queries                  # L_i
    return reads, writes
