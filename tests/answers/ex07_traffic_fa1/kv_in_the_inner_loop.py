# kind: one mistake
# what: K_j and V_j are counted once per query block (T_r times), as if they were read in the inner loop; they are read once per j
# shows: reads are too many whenever B_r < N_q (T_r > 1)
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

Your formula is held against the memory model, which counts what flashlab.rungs.fa1.fa1_forward moves, at sizes you have not seen.
Blocks may be short: T_c = ⌈N_k / B_c⌉ and T_r = ⌈N_q / B_r⌉.

Not allowed: measuring it (flashlab.rungs), the finished function from flashlab.cost or solutions/.

Hint: per key block the whole of Q passes by, whatever B_r is. How many key blocks are there?
"""

from math import ceil


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    T_r = ceil(N_q / B_r)
    T_c = ceil(N_k / B_c)

    # K and V pass by once per query block, Q and the state once per key block
    read_KV = T_r * N_k * (d + d_v)
    read_Q = T_c * N_q * d
    read_state = T_c * N_q * (d_v + 2)

    write_init = N_q * (d_v + 2)
    write_state = T_c * N_q * (d_v + 2)
    write_L = N_q

    return read_KV + read_Q + read_state, write_init + write_state + write_L
