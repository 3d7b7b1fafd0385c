# kind: one mistake
# what: l and m are written beside O and L at the end, as in FA1; in FA2 they never leave the chip
# shows: everywhere: 2 * N_q writes too many
"""ex07_traffic_fa2 · predict the traffic of FlashAttention-2"""


def fa2_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements."""
    T_r = (N_q - 1) // B_r + 1
    O, L, l, m = N_q * d_v, N_q, N_q, N_q
    return N_q * d + T_r * (N_k * d + N_k * d_v), O + L + l + m
