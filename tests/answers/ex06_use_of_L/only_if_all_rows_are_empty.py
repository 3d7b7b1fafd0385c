# kind: one mistake
# what: the case "saw no key in either half" is handled only if it is so for all rows at once
# shows: some rows with L_a = L_b = -inf beside others that saw keys: O and L NaN in those rows
"""ex06_use_of_L · putting two finished halves together with L"""

import torch

inf = float("inf")


def combine(O_a, L_a, O_b, L_b):
    """(O, L)."""
    top = torch.maximum(L_a, L_b)
    if torch.all(top == -inf):
        return torch.zeros_like(O_a), torch.full_like(L_a, -inf)
    s_a, s_b = torch.exp(L_a - top), torch.exp(L_b - top)
    s = s_a + s_b
    O = O_a * (s_a / s).unsqueeze(1) + O_b * (s_b / s).unsqueeze(1)
    return O, top + torch.log(s)
