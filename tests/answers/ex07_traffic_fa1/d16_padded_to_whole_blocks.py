# kind: one mistake
# what: K and V are counted as T_c whole blocks of B_c rows, as if padded the way Pallas pads its blocks; the last block has only the rows that are left, so N_k rows in all
# shows: B_c does not divide N_k, or is larger: too many reads
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


def cdiv(a, b):
    return (a + b - 1) // b


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    grid = cdiv(N_k, B_c)

    k_block, v_block = (B_c, d), (B_c, d_v)              # BlockSpecs of the outer grid axis
    per_step = k_block[0] * k_block[1] + v_block[0] * v_block[1]

    q_pass = N_q * d                                     # all query blocks of one key step
    state_pass = N_q * d_v + 2 * N_q                     # O, l, m

    reads = grid * (per_step + q_pass + state_pass)
    writes = state_pass + grid * state_pass + N_q        # zeros, every step, L
    return reads, writes
