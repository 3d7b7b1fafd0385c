# kind: right
# what: the pseudocode replayed with a small meter that counts numbers of elements, block by block, short blocks included
# shows: a loop over the blocks is allowed; nothing is measured, only sizes are added up
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


class Meter:
    def __init__(self):
        self.reads = 0
        self.writes = 0

    def load(self, n_rows, n_cols=1):
        self.reads += n_rows * n_cols

    def store(self, n_rows, n_cols=1):
        self.writes += n_rows * n_cols


def block_lengths(total, block):
    full, rest = divmod(total, block)
    return [block] * full + ([rest] if rest else [])


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    hbm = Meter()

    # initialisation
    hbm.store(N_q, d_v)         # O
    hbm.store(N_q)              # l
    hbm.store(N_q)              # m

    key_blocks = block_lengths(N_k, B_c)
    query_blocks = block_lengths(N_q, B_r)
    for j, n_keys in enumerate(key_blocks):
        is_last = j == len(key_blocks) - 1
        hbm.load(n_keys, d)     # K_j
        hbm.load(n_keys, d_v)   # V_j
        for n_queries in query_blocks:
            hbm.load(n_queries, d)      # Q_i
            hbm.load(n_queries, d_v)    # O_i
            hbm.load(n_queries)         # l_i
            hbm.load(n_queries)         # m_i
            hbm.store(n_queries, d_v)   # O_i
            hbm.store(n_queries)        # l_i
            hbm.store(n_queries)        # m_i
            if is_last:
                hbm.store(n_queries)    # L_i

    return hbm.reads, hbm.writes
