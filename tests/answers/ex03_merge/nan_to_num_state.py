# kind: one mistake
# what: nan_to_num on m turns -inf into the most negative float
# shows: rows where both halves saw nothing: m is -3e38 / not -inf
"""ex03_merge: my answer."""

import torch

inf = float("inf")


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    m = torch.nan_to_num(torch.maximum(m_a, m_b))
    safe = torch.where(m == -inf, torch.zeros_like(m), m)
    w_a = torch.exp(m_a - safe)
    w_b = torch.exp(m_b - safe)
    l = w_a * l_a + w_b * l_b
    O = w_a[:, None] * O_a + w_b[:, None] * O_b
    return O, m, l
