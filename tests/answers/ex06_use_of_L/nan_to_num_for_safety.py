# kind: one mistake
# what: torch.nan_to_num on both results "for safety": it also turns L = -inf into the smallest finite number
# shows: rows that saw a key in neither half: L = -3.4e38 (float32), not -inf; O is right
"""ex06_use_of_L · putting two finished halves together with L"""

import torch

inf = float("inf")


def combine(O_a, L_a, O_b, L_b):
    """(O, L)."""
    m = torch.maximum(L_a, L_b)
    e_a = torch.exp(L_a - m)
    e_b = torch.exp(L_b - m)
    total = e_a + e_b
    O = (e_a[:, None] * O_a + e_b[:, None] * O_b) / total[:, None]
    L = torch.where(m == -inf, m, m + torch.log(total))
    return torch.nan_to_num(O), torch.nan_to_num(L)
