# kind: one mistake
# what: each key block is counted with B_c keys, the last one too; a short block has N_k - (T_c - 1)·B_c of them
# shows: reads where B_c does not divide N_k (B_c > N_k as well)

"""ex07_traffic_fa2 · predict the traffic of FlashAttention-2

Chapter 07 · difficulty 3 of 5 · 20 minutes

How many elements does FA2 move, without a mask? Query blocks outside, key blocks inside:

    for each query block i:                        at most B_r queries
        read Q_i
        for each key block j:                      at most B_c keys
            read K_j, V_j
        write O_i, L_i                             O_i, l_i, m_i stayed on chip

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   O (N_q, d_v)   L (N_q,)

A formula or a loop over the blocks: either is held against the memory model, which counts what flashlab.rungs.fa2.fa2_forward
moves, at sizes you have not seen. Blocks may be short: T_c = ⌈N_k / B_c⌉ and T_r = ⌈N_q / B_r⌉.
No size is 0.

Not allowed: measuring it (flashlab.rungs), the finished function from flashlab.cost or solutions/.

Hint: per query block the whole of K and V passes by, whatever B_c is. How many query blocks are there?
"""


def get_number_of_blocks(total, block):
    return total // block + (1 if total % block else 0)


def get_query_block_length(i, N_q, B_r):
    return min(B_r, N_q - i * B_r)


def get_reads_of_key_block(B_c, d, d_v):
    size_of_K_j = B_c * d
    size_of_V_j = B_c * d_v
    return size_of_K_j + size_of_V_j


def get_reads_of_program(i, N_q, N_k, d, d_v, B_r, B_c):
    reads = get_query_block_length(i, N_q, B_r) * d
    for _ in range(get_number_of_blocks(N_k, B_c)):
        reads += get_reads_of_key_block(B_c, d, d_v)
    return reads


def get_writes_of_program(i, N_q, d_v, B_r):
    length = get_query_block_length(i, N_q, B_r)
    return length * d_v + length


def fa2_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    programs = range(get_number_of_blocks(N_q, B_r))
    reads = sum(get_reads_of_program(i, N_q, N_k, d, d_v, B_r, B_c) for i in programs)
    writes = sum(get_writes_of_program(i, N_q, d_v, B_r) for i in programs)
    return reads, writes
