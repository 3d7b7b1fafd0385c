# kind: one mistake
# what: the scaled S is counted once for softmax and logsumexp together, "it is in the cache by then"
# shows: everywhere: N_q * N_k reads too few
"""ex07_traffic_naive · predict the traffic of naive attention"""


def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements."""
    S = N_q * N_k
    reads = N_q * d + N_k * d          # S = Q K^T
    reads += S                         # times scale
    reads += S                         # softmax and logsumexp
    reads += S + N_k * d_v             # P V
    writes = S + S + S + N_q * d_v + N_q
    return reads, writes
