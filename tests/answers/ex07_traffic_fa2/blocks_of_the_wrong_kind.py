# kind: one mistake
# what: the number of query blocks is computed with B_c in place of B_r
# shows: wherever ceil(N_q / B_c) differs from ceil(N_q / B_r): reads wrong
"""ex07_traffic_fa2 · predict the traffic of FlashAttention-2"""


def blocks(N, B):
    return N // B + (N % B > 0)


def fa2_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements."""
    q_reads = N_q * d
    kv_reads = blocks(N_q, B_c) * N_k * (d + d_v)
    return q_reads + kv_reads, N_q * (d_v + 1)
