# kind: one mistake
# what: state_a is rescaled in place: the caller's O_a and l_a change
# shows: the result is right; state_a is changed wherever m_b > m_a
"""ex03_merge · my answer."""

import torch

inf = float("inf")


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    m = torch.maximum(m_a, m_b)
    shift = torch.where(m == -inf, 0.0, m)
    alpha, beta = torch.exp(m_a - shift), torch.exp(m_b - shift)
    O_a *= alpha[:, None]
    l_a *= alpha
    return O_a + beta[:, None] * O_b, m, l_a + beta * l_b
