# kind: one mistake
# what: T_c is N_k // B_c + 1, right only where B_c does not divide N_k
# shows: B_c divides N_k: one key step too many, in reads and writes
"""ex07_traffic_fa1 · predict the traffic of FlashAttention-1"""


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements."""
    T_c = N_k // B_c + 1
    reads = N_k * (d + d_v) + T_c * (N_q * d + N_q * d_v + N_q + N_q)
    writes = (N_q * d_v + 2 * N_q) + T_c * (N_q * d_v + N_q + N_q) + N_q
    return reads, writes
