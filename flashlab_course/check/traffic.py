"""What the traffic exercises of chapter 07 share: truth from the memory model, and cases."""

import torch

from flashlab.memory import KiB, Memory
from flashlab_course.check.cases import case_of


def measured(rung, N_q, N_k, d, d_v, **tiles):
    """(reads, writes) of a rung in elements, counted by the memory model on float32 tensors."""
    Q, K, V = torch.ones(N_q, d), torch.ones(N_k, d), torch.ones(N_k, d_v)
    with Memory(1024 * KiB) as mem:
        rung(Q, K, V, **tiles)
    return mem.read // 4, mem.written // 4


case = case_of(lambda N_q, N_k, d, d_v, **tiles: {"N_q": N_q, "N_k": N_k, "d": d, "d_v": d_v} | tiles)

TILED_CASES = [case(name, *sizes, B_r=B_r, B_c=B_c) for name, *sizes, B_r, B_c in (
    ("one block of each", 3, 3, 2, 2, 3, 3),
    ("two key blocks", 3, 6, 2, 2, 3, 3),
    ("two query blocks", 6, 3, 2, 2, 3, 3),
    ("B_r ≠ B_c", 12, 12, 4, 4, 2, 3),
    ("d_v ≠ d", 8, 12, 3, 5, 4, 3),
    ("a short last key block", 9, 8, 3, 2, 3, 3),
    ("a short last query block", 8, 9, 3, 2, 3, 3),
    ("short last blocks", 11, 13, 4, 3, 4, 5),
)]
