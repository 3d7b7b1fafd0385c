# kind: two mistakes
# what: L_a - L_b in the exponent of w_a, and the a weight is used for both halves
# shows: any
"""ex06_use_of_L: my answer."""

import torch

inf = float("inf")


def combine(O_a, L_a, O_b, L_b):
    """(O, L) of all the keys, from those of each half."""
    L = torch.logaddexp(L_a, L_b)
    w_a = torch.exp(L_a - L_b).nan_to_num(0.0)
    w_b = torch.exp(L_b - L).nan_to_num(0.0)
    return w_a[:, None] * O_a + w_a[:, None] * O_b, L
