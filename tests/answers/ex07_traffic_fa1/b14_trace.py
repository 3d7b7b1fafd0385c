# kind: right
# what: writes down the trace of the loops as a list of memory operations and adds them up
# shows: every line of the pseudocode once, short last blocks with their own number of rows
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

from collections import namedtuple

Op = namedtuple("Op", "kind tensor elements")


def trace(N_q, N_k, d, d_v, B_r, B_c):
    yield Op("st", "O", N_q * d_v)
    yield Op("st", "l", N_q)
    yield Op("st", "m", N_q)
    for j in range(0, N_k, B_c):
        keys = min(B_c, N_k - j)
        is_last = j + B_c >= N_k
        yield Op("ld", "K", keys * d)
        yield Op("ld", "V", keys * d_v)
        for i in range(0, N_q, B_r):
            queries = min(B_r, N_q - i)
            yield Op("ld", "Q", queries * d)
            for kind in ("ld", "st"):
                yield Op(kind, "O", queries * d_v)
                yield Op(kind, "l", queries)
                yield Op(kind, "m", queries)
            if is_last:
                yield Op("st", "L", queries)


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    total = {"ld": 0, "st": 0}
    for op in trace(N_q, N_k, d, d_v, B_r, B_c):
        total[op.kind] += op.elements
    return total["ld"], total["st"]
