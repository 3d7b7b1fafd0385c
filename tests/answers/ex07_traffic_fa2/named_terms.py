# kind: right
# what: long form: one function per tensor, how often it is moved times how large it is
# shows: right: Q once, K and V T_r times, O and L once; B_c does not matter
"""ex07_traffic_fa2 · predict the traffic of FlashAttention-2

Chapter 07 · difficulty 3 of 5 · 20 minutes

How many elements does FA2 move, without a mask? Query blocks outside, key blocks inside:

    for each query block i:                        at most B_r queries
        read Q_i
        for each key block j:                      at most B_c keys
            read K_j, V_j
        write O_i, L_i                             O_i, l_i, m_i stayed on chip

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   O (N_q, d_v)   L (N_q,)

Your formula is held against the memory model, which counts what flashlab.rungs.fa2.fa2_forward moves, at sizes you have not seen.
Blocks may be short: T_c = ⌈N_k / B_c⌉ and T_r = ⌈N_q / B_r⌉.

Not allowed: measuring it (flashlab.rungs), the finished function from flashlab.cost or solutions/.

Hint: per query block the whole of K and V passes by, whatever B_c is. How many query blocks are there?
"""


def ceil_div(a, b):
    return (a - 1) // b + 1


def elements(*shape):
    n = 1
    for size in shape:
        n *= size
    return n


def fa2_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    query_blocks = ceil_div(N_q, B_r)

    reads_of = {
        "Q": (1, elements(N_q, d)),
        "K": (query_blocks, elements(N_k, d)),
        "V": (query_blocks, elements(N_k, d_v)),
    }
    writes_of = {
        "O": (1, elements(N_q, d_v)),
        "L": (1, elements(N_q)),
    }

    reads = 0
    for times, size in reads_of.values():
        reads += times * size
    writes = 0
    for times, size in writes_of.values():
        writes += times * size
    return reads, writes
