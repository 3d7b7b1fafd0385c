# kind: right
# what: verbose beginner: row by row with python floats and math.exp, helper for the factor
"""ex03_merge: my answer."""

import torch

inf = float("inf")


import math


def factor(old, new):
    if old == -inf:
        return 0.0
    return math.exp(old - new)


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    O, m, l = torch.zeros_like(O_a), torch.empty_like(m_a), torch.empty_like(l_a)
    for r in range(len(m_a)):
        top = max(m_a[r].item(), m_b[r].item())
        fa = factor(m_a[r].item(), top)
        fb = factor(m_b[r].item(), top)
        m[r] = top
        l[r] = fa * l_a[r] + fb * l_b[r]
        O[r] = fa * O_a[r] + fb * O_b[r]
    return O, m, l
