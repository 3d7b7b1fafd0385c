# kind: right
# what: beginner's loop over rows with Python floats and if/else for the rows that saw nothing
"""ex06_use_of_L · putting two finished halves together with L"""

import torch

inf = float("inf")


from math import exp, log1p


def combine(O_a, L_a, O_b, L_b):
    """(O, L)."""
    O = torch.zeros_like(O_a)
    L = torch.full_like(L_a, -inf)
    for n in range(len(L_a)):
        a, b = float(L_a[n]), float(L_b[n])
        if a == -inf and b == -inf:
            continue
        if a >= b:
            share_b = exp(b - a) / (1 + exp(b - a))
            share_a = 1 / (1 + exp(b - a))
            L[n] = a + log1p(exp(b - a))
        else:
            share_a = exp(a - b) / (1 + exp(a - b))
            share_b = 1 / (1 + exp(a - b))
            L[n] = b + log1p(exp(a - b))
        O[n] = share_a * O_a[n] + share_b * O_b[n]
    return O, L
