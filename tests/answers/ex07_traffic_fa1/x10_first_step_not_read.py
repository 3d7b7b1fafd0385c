# kind: one mistake
# what: takes O_i, l_i, m_i as known in the first key step ("they are 0, 0, -inf") and counts their reads from the second on; the loop reads them in every step
# shows: reads, always: too small by N_q·(d_v + 2)

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


def ceil_div(a, b):
    return (a + b - 1) // b


def size_of_state(N_q, d_v):
    """O, l and m."""
    return N_q * d_v + N_q + N_q


def count_reads(N_q, N_k, d, d_v, key_steps):
    keys_and_values = N_k * d + N_k * d_v
    queries = key_steps * N_q * d
    state = (key_steps - 1) * size_of_state(N_q, d_v)      # the first step starts from zeros
    return keys_and_values + queries + state


def count_writes(N_q, d_v, key_steps):
    initial = size_of_state(N_q, d_v)
    state = key_steps * size_of_state(N_q, d_v)
    logsumexp = N_q
    return initial + state + logsumexp


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    key_steps = ceil_div(N_k, B_c)
    return count_reads(N_q, N_k, d, d_v, key_steps), count_writes(N_q, d_v, key_steps)
