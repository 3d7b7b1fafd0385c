# kind: two mistakes
# what: the zeros and -inf written before the loops are left out; m is forgotten among what travels
# shows: everywhere: reads T_c * N_q too few, writes too few by the first O, l, m and by m in each step
"""ex07_traffic_fa1 · predict the traffic of FlashAttention-1"""


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements."""
    T_c = (N_k + B_c - 1) // B_c
    reads = N_k * (d + d_v) + T_c * N_q * (d + d_v + 1)
    writes = T_c * N_q * (d_v + 1) + N_q
    return reads, writes
