# kind: right
# what: what one sweep over the queries costs, times the number of key blocks, in named parts
# shows: short blocks only enter through T_c; B_r cancels, since the query blocks of a sweep always add up to N_q rows

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
No size is 0.

Not allowed: measuring it (flashlab.rungs), the finished function from flashlab.cost or solutions/.

Hint: per key block the whole of Q passes by, whatever B_r is. How many key blocks are there?
"""


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    sweeps = (N_k + B_c - 1) // B_c          # one pass over all queries for each key block

    size_Q = N_q * d
    size_O = N_q * d_v
    size_l = size_m = size_L = N_q
    size_K = N_k * d
    size_V = N_k * d_v

    reads = size_K + size_V                                   # each key block once
    reads += sweeps * (size_Q + size_O + size_l + size_m)

    writes = size_O + size_l + size_m                         # 0, 0, -inf
    writes += sweeps * (size_O + size_l + size_m)
    writes += size_L                                          # in the last sweep only
    return reads, writes
