# kind: one mistake
# what: T_r = round(N_q / B_r + 0.5): Python rounds halves to even, so some exact quotients become one too many
# shows: B_r divides N_q with an odd quotient from 1 on (1 -> 2, 3 -> 4): one walk over K and V too many; even quotients and short blocks are right
"""ex07_traffic_fa2 · predict the traffic of FlashAttention-2"""


def fa2_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements."""
    T_r = round(N_q / B_r + 0.5)
    reads = N_q * d + T_r * N_k * (d + d_v)
    writes = N_q * d_v + N_q
    return reads, writes
