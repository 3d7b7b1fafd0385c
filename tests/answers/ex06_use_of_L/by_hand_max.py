# kind: right
# what: by hand: maximum, masked_fill, one weight as a sigmoid-free quotient
"""ex06_use_of_L: my answer."""

import torch

inf = float("inf")


def combine(O_a, L_a, O_b, L_b):
    """(O, L) of all the keys, from those of each half."""
    big = torch.maximum(L_a, L_b)
    big = big.masked_fill(big == -inf, 0.0)
    e_a, e_b = torch.exp(L_a - big), torch.exp(L_b - big)
    total = e_a + e_b
    share = e_a / torch.where(total == 0, torch.ones_like(total), total)
    rest = e_b / torch.where(total == 0, torch.ones_like(total), total)
    return O_a * share.unsqueeze(1) + O_b * rest.unsqueeze(1), big + total.log()
