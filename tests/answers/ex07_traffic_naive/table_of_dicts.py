# kind: right
# what: a table of (reads, writes) lists, summed with zip
"""ex07_traffic_naive: my answer."""

def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements, two whole numbers."""
    q, k, v, s, o, l = N_q * d, N_k * d, N_k * d_v, N_q * N_k, N_q * d_v, N_q
    table = [(q + k, s), (s, s), (s, s), (s + v, o), (s, l)]
    reads, writes = map(sum, zip(*table))
    return reads, writes
