# kind: one mistake
# what: short blocks are counted as full: T_r * B_r queries
# shows: B_r does not divide N_q
"""ex07_traffic_fa1: my answer."""

def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    T_c = -(-N_k // B_c)
    reads = N_k * (d + d_v) + T_c * -(-N_q // B_r) * B_r * (d + d_v + 2)
    writes = N_q * (d_v + 2) + T_c * N_q * (d_v + 2) + N_q
    return reads, writes
