# kind: right
# what: web developer's way: a ledger that books each read and write of the loops, block by block
# shows: within the contract: a loop over the blocks, with short ones; L only in the last key step

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


class Ledger:
    def __init__(self):
        self.reads = 0
        self.writes = 0

    def read(self, *sizes):
        self.reads += sum(sizes)

    def write(self, *sizes):
        self.writes += sum(sizes)


def matrix(rows, cols):
    return rows * cols


def vector(rows):
    return rows


def block_lengths(total, block):
    lengths = []
    while total > 0:
        lengths.append(min(block, total))
        total -= block
    return lengths


def book_initialisation(ledger, N_q, d_v):
    ledger.write(matrix(N_q, d_v), vector(N_q), vector(N_q))


def book_key_block(ledger, keys, d, d_v):
    ledger.read(matrix(keys, d), matrix(keys, d_v))


def book_step(ledger, queries, d, d_v, is_last):
    ledger.read(matrix(queries, d), matrix(queries, d_v), vector(queries), vector(queries))
    ledger.write(matrix(queries, d_v), vector(queries), vector(queries))
    if is_last:
        ledger.write(vector(queries))


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    ledger = Ledger()
    key_blocks = block_lengths(N_k, B_c)
    query_blocks = block_lengths(N_q, B_r)
    book_initialisation(ledger, N_q, d_v)
    for j, keys in enumerate(key_blocks):
        book_key_block(ledger, keys, d, d_v)
        for queries in query_blocks:
            book_step(ledger, queries, d, d_v, is_last=j == len(key_blocks) - 1)
    return ledger.reads, ledger.writes
