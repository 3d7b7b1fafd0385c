# kind: one mistake
# what: L = L_a + log(1 + exp(L_b - L_a)) whichever is larger: exp overflows when half b is far above half a
# shows: L_b - L_a > 88 in float32 (709 in float64): L = inf, O = 0
"""ex06_use_of_L · putting two finished halves together with L"""

import torch

inf = float("inf")


def combine(O_a, L_a, O_b, L_b):
    """(O, L)."""
    empty_a, empty_b = L_a == -inf, L_b == -inf
    diff = torch.where(empty_a | empty_b, 0, L_b - L_a)
    L = L_a + torch.log1p(torch.exp(diff))
    L = torch.where(empty_a, L_b, torch.where(empty_b, L_a, L))
    safe = torch.where(empty_a & empty_b, 0, L)
    w_a = torch.exp(L_a - safe)[:, None]
    w_b = torch.exp(L_b - safe)[:, None]
    return w_a * O_a + w_b * O_b, L
