# kind: right
# what: the five operations as a list of (what is read, what is written), sizes looked up by name and zipped up
"""ex07_traffic_naive · predict the traffic of naive attention"""


def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements."""
    size = dict(Q=N_q * d, K=N_k * d, V=N_k * d_v, S=N_q * N_k, P=N_q * N_k, O=N_q * d_v, L=N_q)
    operations = [("QK", "S"), ("S", "S"), ("S", "P"), ("PV", "O"), ("S", "L")]
    sources, results = zip(*operations)
    count = lambda names: sum(size[name] for name in "".join(names))
    return count(sources), count(results)
