# kind: one mistake
# what: L written in each key step
# shows: more than one key block
"""ex07_traffic_fa1: my answer."""

def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    T_c = -(-N_k // B_c)
    reads = N_k * (d + d_v) + T_c * N_q * (d + d_v + 2)
    writes = N_q * (d_v + 2) + T_c * N_q * (d_v + 3)
    return reads, writes
