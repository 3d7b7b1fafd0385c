# kind: one mistake
# what: S * scale is taken to be free (fused into the product): its read and its write are left out
# shows: all
"""ex07_traffic_naive: my answer."""

def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements, two whole numbers."""
    S = N_q * N_k
    reads = (N_q + N_k) * d + S + (S + N_k * d_v) + S
    writes = S + S + N_q * d_v + N_q
    return reads, writes
