"""ex07_traffic_fa2 · predict the traffic of FlashAttention-2

Chapter 07 · difficulty 3 of 5 · 10 minutes

How many elements does FA2 move, without a mask? Query blocks outside, key blocks inside:

    for each query block i:                        at most B_r queries
        read Q_i
        for each key block j:                      at most B_c keys
            read K_j, V_j
        write O_i, L_i                             O_i, l_i, m_i stayed on chip

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   O (N_q, d_v)   L (N_q,)

A formula or a loop over the blocks: either is held against the memory model, which counts what
flashlab.rungs.fa2.fa2_forward moves, at sizes you have not seen. Blocks may be short: T_c = ⌈N_k / B_c⌉ and T_r = ⌈N_q
/ B_r⌉. No size is 0.

Not allowed: measuring it (flashlab.rungs), the finished function from flashlab.cost or solutions/.

Hint: per query block the whole of K and V passes by, whatever B_c is. How many query blocks are there?
"""


def fa2_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    # your turn: the number of elements read and the number written
    raise NotImplementedError("ex07_traffic_fa2: the number of elements read and the number written")
