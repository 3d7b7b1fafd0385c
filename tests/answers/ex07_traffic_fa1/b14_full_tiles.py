# kind: one mistake
# what: every block is counted with B_r or B_c rows, the short last ones too; those have N - (T - 1) * B rows
# shows: N_k not a multiple of B_c, or N_q not a multiple of B_r (also a B larger than N)
"""ex07_traffic_fa1 · predict the traffic of FlashAttention-1

Chapter 07 · difficulty 3 of 5 · 20 minutes

How many elements does FA1 move? Key blocks outside, query blocks inside:

    write O = 0, l = 0, m = −∞ to HBM
    for each key block j:                          at most B_c keys
        read K_j, V_j
        for each query block i:                    at most B_r queries
            read Q_i, O_i, l_i, m_i
            write O_i, l_i, m_i, and in the last key step L_i

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   O (N_q, d_v)   l, m, L (N_q,)

A formula or a loop over the blocks: either is held against the memory model, which counts what flashlab.rungs.fa1.fa1_forward
moves, at sizes you have not seen. Blocks may be short: T_c = ⌈N_k / B_c⌉ and T_r = ⌈N_q / B_r⌉.
No size is 0.

Not allowed: measuring it (flashlab.rungs), the finished function from flashlab.cost or solutions/.

Hint: per key block the whole of Q passes by, whatever B_r is. How many key blocks are there?
"""


def number_of_blocks(N, B):
    count = 0
    while count * B < N:
        count += 1
    return count


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    T_r, T_c = number_of_blocks(N_q, B_r), number_of_blocks(N_k, B_c)

    q_tile = B_r * d
    k_tile = B_c * d
    v_tile = B_c * d_v
    state_tile = B_r * d_v + B_r + B_r         # O_i, l_i, m_i

    reads = 0
    writes = N_q * d_v + N_q + N_q             # O = 0, l = 0, m = -inf
    for _ in range(T_c):
        reads += k_tile + v_tile
        reads += T_r * (q_tile + state_tile)
        writes += T_r * state_tile
    writes += T_r * B_r                        # L
    return reads, writes
