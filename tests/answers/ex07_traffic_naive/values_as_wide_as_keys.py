# kind: one mistake
# what: V is counted with d columns, as K; O with d_v
# shows: d_v != d: reads wrong by N_k * (d - d_v)
"""ex07_traffic_naive · predict the traffic of naive attention"""


def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements."""
    reads = N_q * d + 2 * N_k * d + 4 * N_q * N_k
    writes = 3 * N_q * N_k + N_q * d_v + N_q
    return reads, writes
