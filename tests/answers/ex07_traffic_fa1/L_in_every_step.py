# kind: one mistake
# what: L_i is counted as written in every key step and not only in the last
# shows: two or more key blocks: (T_c - 1) * N_q writes too many; with one block it is right
"""ex07_traffic_fa1 · predict the traffic of FlashAttention-1"""


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements."""
    T_c = -(-N_k // B_c)
    stats = 2
    reads = N_k * d + N_k * d_v + T_c * N_q * (d + d_v + stats)
    writes = N_q * (d_v + stats)
    writes += T_c * N_q * (d_v + stats + 1)
    return reads, writes
