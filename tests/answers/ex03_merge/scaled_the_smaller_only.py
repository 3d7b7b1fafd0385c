# kind: one mistake
# what: only the a side is rescaled: l_b and O_b are added as they are (assumes b holds the maximum)
# shows: m_a > m_b in some row
"""ex03_merge: my answer."""

import torch

inf = float("inf")


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    m = torch.maximum(m_a, m_b)
    safe = torch.where(m == -inf, torch.zeros_like(m), m)
    w_a = torch.exp(m_a - safe)
    w_b = torch.ones_like(m_b)
    l = w_a * l_a + w_b * l_b
    O = w_a[:, None] * O_a + w_b[:, None] * O_b
    return O, m, l
