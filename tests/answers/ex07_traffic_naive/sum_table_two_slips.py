# kind: two mistakes
# what: V is counted with d instead of d_v, and S is not read again for the logsumexp
# shows: all (V slip: d != d_v)
"""ex07_traffic_naive: my answer."""

def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements, two whole numbers."""
    reads = N_q * d + N_k * d          # S = Q K^T
    reads += N_q * N_k                 # scale
    reads += N_q * N_k                 # softmax
    reads += N_q * N_k + N_k * d       # O = P V
    writes = 3 * N_q * N_k + N_q * d_v + N_q
    return reads, writes
