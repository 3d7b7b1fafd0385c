# kind: one mistake
# what: an empty half is noticed only if all of its rows are empty
# shows: a row empty in both halves beside rows that are not: NaN in O and l of that row
"""ex03_merge · my answer."""

import torch

inf = float("inf")


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    if (m_a == -inf).all():
        return O_b.clone(), m_b.clone(), l_b.clone()
    if (m_b == -inf).all():
        return O_a.clone(), m_a.clone(), l_a.clone()
    m = torch.maximum(m_a, m_b)
    alpha = torch.exp(m_a - m)
    beta = torch.exp(m_b - m)
    return O_a * alpha[:, None] + O_b * beta[:, None], m, l_a * alpha + l_b * beta
