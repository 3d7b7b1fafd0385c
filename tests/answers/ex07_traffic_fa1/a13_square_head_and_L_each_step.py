# kind: two mistakes
# what: (1) O is counted with d columns instead of d_v, in reads and writes; (2) L_i is counted in every key step, not only in the last one
# shows: (1) d != d_v; (2) more than one key block (N_k > B_c)
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

def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    reads = 0
    writes = N_q * d + N_q + N_q                           # O = 0, l = 0, m = -inf
    for j in range(0, N_k, B_c):
        n_keys = min(j + B_c, N_k) - j
        reads += n_keys * (d + d_v)                        # K_j, V_j
        for i in range(0, N_q, B_r):
            n_queries = min(i + B_r, N_q) - i
            reads += n_queries * (d + d + 1 + 1)           # Q_i, O_i, l_i, m_i
            writes += n_queries * (d + 1 + 1 + 1)          # O_i, l_i, m_i, L_i
    return reads, writes
