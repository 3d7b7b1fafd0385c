# kind: right
# what: sizes of the tensors times the number of trips of each, T_c from divmod; B_r is not used
# shows: whole numbers, short blocks included, since all blocks together are the tensor
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
    whole, rest = divmod(N_k, B_c)
    T_c = whole + (rest > 0)

    size = {"Q": N_q * d, "K": N_k * d, "V": N_k * d_v, "O": N_q * d_v, "l": N_q, "m": N_q, "L": N_q}
    read_trips = {"K": 1, "V": 1, "Q": T_c, "O": T_c, "l": T_c, "m": T_c}
    write_trips = {"O": T_c + 1, "l": T_c + 1, "m": T_c + 1, "L": 1}

    reads = sum(size[name] * trips for name, trips in read_trips.items())
    writes = sum(size[name] * trips for name, trips in write_trips.items())
    return reads, writes
