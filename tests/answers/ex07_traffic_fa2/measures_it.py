# kind: point missed
# what: runs fa2_forward under Memory and reads the counters
# shows: measuring is forbidden
"""ex07_traffic_fa2: my answer."""

import torch

from flashlab.memory import Memory
from flashlab.rungs.fa2 import fa2_forward


def fa2_traffic(N_q, N_k, d, d_v, B_r, B_c):
    """(reads, writes) in elements, two whole numbers."""
    Q, K, V = torch.zeros(N_q, d), torch.zeros(N_k, d), torch.zeros(N_k, d_v)
    with Memory(sram_bytes=2 ** 30) as mem:
        fa2_forward(Q, K, V, B_r=B_r, B_c=B_c)
    return sum(e.read for e in mem.log) // 4, sum(e.written for e in mem.log) // 4
