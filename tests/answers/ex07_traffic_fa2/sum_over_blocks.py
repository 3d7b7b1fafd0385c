# kind: right
# what: one generator expression per direction, over the query blocks with their real lengths
# shows: right: each query block reads its own rows of Q, all of K and V, and writes its rows of O and L
"""ex07_traffic_fa2 · predict the traffic of FlashAttention-2

Chapter 07 · difficulty 3 of 5 · 20 minutes

How many elements does FA2 move, without a mask? Query blocks outside, key blocks inside:

    for each query block i:                        at most B_r queries
        read Q_i
        for each key block j:                      at most B_c keys
            read K_j, V_j
        write O_i, L_i                             O_i, l_i, m_i stayed on chip

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   O (N_q, d_v)   L (N_q,)

Your formula is held against the memory model, which counts what flashlab.rungs.fa2.fa2_forward moves, at sizes you have not seen.
Blocks may be short: T_c = ⌈N_k / B_c⌉ and T_r = ⌈N_q / B_r⌉.

Not allowed: measuring it (flashlab.rungs), the finished function from flashlab.cost or solutions/.

Hint: per query block the whole of K and V passes by, whatever B_c is. How many query blocks are there?
"""


def fa2_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    lengths = [len(range(N_q)[i:i + B_r]) for i in range(0, N_q, B_r)]
    key_lengths = [len(range(N_k)[j:j + B_c]) for j in range(0, N_k, B_c)]
    one_pass = sum(n * d + n * d_v for n in key_lengths)
    return sum(n * d + one_pass for n in lengths), sum(n * d_v + n for n in lengths)
