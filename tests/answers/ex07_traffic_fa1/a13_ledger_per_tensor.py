# kind: right
# what: walks the pseudocode literally and keeps two ledgers (Counter per tensor), summed at the end
# shows: block lengths are min(B, what is left), so short blocks count what they hold; the last key step is recognised by its end
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


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    reads, writes = Counter(), Counter()
    writes.update(O=N_q * d_v, l=N_q, m=N_q)                    # the initial values

    for key_start in range(0, N_k, B_c):
        keys = min(B_c, N_k - key_start)
        is_last = key_start + keys == N_k
        reads.update(K=keys * d, V=keys * d_v)

        for query_start in range(0, N_q, B_r):
            queries = min(B_r, N_q - query_start)
            reads.update(Q=queries * d, O=queries * d_v, l=queries, m=queries)
            writes.update(O=queries * d_v, l=queries, m=queries)
            if is_last:
                writes.update(L=queries)

    return sum(reads.values()), sum(writes.values())
