# kind: right
# what: a dictionary with one entry for each tensor, summed at the end; T_r by divmod
"""ex07_traffic_fa2 · predict the traffic of FlashAttention-2"""


def fa2_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements."""
    T_r, rest = divmod(N_q, B_r)
    if rest:
        T_r += 1
    read = {"Q": N_q * d, "K": T_r * N_k * d, "V": T_r * N_k * d_v}
    written = {"O": N_q * d_v, "L": N_q}
    return sum(read.values()), sum(written.values())
