# kind: one mistake
# what: w_b = 1 - exp(L_b - L), which is the weight of the other half
# shows: L_a != L_b
"""ex06_use_of_L: my answer."""

import torch

inf = float("inf")


def combine(O_a, L_a, O_b, L_b):
    """(O, L) of all the keys, from those of each half."""
    L = torch.logaddexp(L_a, L_b)
    w_a = torch.exp(L_a - L).nan_to_num(0.0)
    w_b = 1 - torch.exp(L_b - L).nan_to_num(0.0)
    return w_a[:, None] * O_a + w_b[:, None] * O_b, L
