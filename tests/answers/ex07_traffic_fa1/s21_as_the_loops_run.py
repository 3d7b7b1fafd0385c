# kind: right
# what: runs through the loops of the text and adds up each line, C style
# shows: short last blocks on both sides, blocks larger than the matrix, one key block (its step is first and last)
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
    writes = 0

    writes += N_q * d_v     # O = 0
    writes += N_q           # l = 0
    writes += N_q           # m = -inf

    j = 0
    while j < N_k:
        keys = B_c if j + B_c <= N_k else N_k - j
        reads += keys * d + keys * d_v
        i = 0
        while i < N_q:
            queries = B_r if i + B_r <= N_q else N_q - i
            reads += queries * d        # Q_i
            reads += queries * d_v      # O_i
            reads += 2 * queries        # l_i, m_i
            writes += queries * d_v
            writes += 2 * queries
            if j + B_c >= N_k:
                writes += queries       # L_i
            i += B_r
        j += B_c

    return reads, writes
