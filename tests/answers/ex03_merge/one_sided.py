# kind: two mistakes
# what: state_b is never rescaled; and two empty rows are not guarded (NaN)
# shows: O and l where m_a > m_b; NaN where both halves are empty
"""ex03_merge · my answer."""

import torch

inf = float("inf")


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    m = torch.maximum(m_a, m_b)
    alpha = torch.exp(m_a - m)
    return alpha[:, None] * O_a + O_b, m, alpha * l_a + l_b
