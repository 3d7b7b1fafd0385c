# kind: right
# what: the two loops are walked with sizes only, and a small counter class adds up the tiles that pass
"""ex07_traffic_fa1 · predict the traffic of FlashAttention-1"""


class Counter:
    """Elements read and written, by tile shape."""

    def __init__(self):
        self.reads = self.writes = 0

    def read(self, n, *widths):
        self.reads += n * sum(widths)

    def write(self, n, *widths):
        self.writes += n * sum(widths)


def block_sizes(N, B):
    return [min(B, N - start) for start in range(0, N, B)]


def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements."""
    hbm = Counter()
    hbm.write(N_q, d_v, 1, 1)                      # O, l, m before the loops
    key_blocks = block_sizes(N_k, B_c)
    for j, n_k in enumerate(key_blocks):
        hbm.read(n_k, d, d_v)
        for n_q in block_sizes(N_q, B_r):
            hbm.read(n_q, d, d_v, 1, 1)
            hbm.write(n_q, d_v, 1, 1)
            if j == len(key_blocks) - 1:
                hbm.write(n_q, 1)
    return hbm.reads, hbm.writes
