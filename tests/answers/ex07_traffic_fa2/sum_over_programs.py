# kind: right
# what: one program's traffic as a function, added up over range(0, N_q, B_r)
"""ex07_traffic_fa2 · predict the traffic of FlashAttention-2"""


def program(queries, N_k, d, d_v):
    """What one query block of that many queries moves."""
    return queries * d + N_k * (d + d_v), queries * (d_v + 1)


def fa2_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements."""
    reads = writes = 0
    for start in range(0, N_q, B_r):
        r, w = program(min(B_r, N_q - start), N_k, d, d_v)
        reads, writes = reads + r, writes + w
    return reads, writes
