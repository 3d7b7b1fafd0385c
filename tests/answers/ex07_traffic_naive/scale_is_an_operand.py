# kind: one mistake
# what: the scale is counted as an operand of S * scale, one element read from HBM; it is a Python number
# shows: everywhere: reads one element too many
"""ex07_traffic_naive · predict the traffic of naive attention"""


def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements."""
    matmul = lambda m, k, n: (m * k + k * n, m * n)
    steps = [
        matmul(N_q, d, N_k),
        (N_q * N_k + 1, N_q * N_k),
        (N_q * N_k, N_q * N_k),
        matmul(N_q, N_k, d_v),
        (N_q * N_k, N_q),
    ]
    return sum(r for r, _ in steps), sum(w for _, w in steps)
