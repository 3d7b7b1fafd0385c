# kind: right
# what: loops as in the pseudo-code and adds up
"""ex07_traffic_fa1: my answer."""

def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    reads, writes = 0, N_q * d_v + N_q + N_q
    for k0 in range(0, N_k, B_c):
        keys = min(B_c, N_k - k0)
        last = k0 + B_c >= N_k
        reads += keys * d + keys * d_v
        for q0 in range(0, N_q, B_r):
            n = min(B_r, N_q - q0)
            reads += n * d + n * d_v + 2 * n
            writes += n * d_v + 2 * n
            if last:
                writes += n
    return reads, writes
