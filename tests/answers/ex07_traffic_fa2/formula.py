# kind: right
# what: the formula
"""ex07_traffic_fa2: my answer."""

def fa2_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    T_r = -(-N_q // B_r)
    reads = N_q * d + T_r * N_k * (d + d_v)
    writes = N_q * (d_v + 1)
    return reads, writes
