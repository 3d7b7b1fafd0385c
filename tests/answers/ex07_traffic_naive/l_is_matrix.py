# kind: one mistake
# what: L is counted as N_q * d_v
# shows: d_v != 1
"""ex07_traffic_naive: my answer."""

def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements, two whole numbers."""
    S = N_q * N_k
    reads = (N_q + N_k) * d + S + S + (S + N_k * d_v) + S
    writes = S + S + S + N_q * d_v + N_q * d_v
    return reads, writes
