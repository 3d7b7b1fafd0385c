# kind: one mistake
# what: K and V are counted as T_c whole blocks of B_c keys, as if the last one were padded
# shows: B_c does not divide N_k: (T_c * B_c - N_k) * (d + d_v) reads too many
"""ex07_traffic_fa1 · predict the traffic of FlashAttention-1"""


from math import ceil


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements."""
    T_c = ceil(N_k / B_c)
    per_key_block = B_c * (d + d_v)
    per_pass_over_queries = N_q * (d + d_v + 2)
    reads = T_c * (per_key_block + per_pass_over_queries)
    writes = (T_c + 1) * N_q * (d_v + 2) + N_q
    return reads, writes
