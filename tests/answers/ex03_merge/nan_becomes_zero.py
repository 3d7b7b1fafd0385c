# kind: right
# what: factors of the two halves by a helper; exp(-inf - -inf), a NaN, is turned into 0
"""ex03_merge · my answer."""

import torch

inf = float("inf")


def rate(old, new):
    """From units of exp(old) to units of exp(new)."""
    return torch.exp(old - new).nan_to_num(nan=0.0)


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    m = torch.where(m_a > m_b, m_a, m_b)
    a, b = rate(m_a, m), rate(m_b, m)
    l = l_a * a
    l += l_b * b
    O = O_a * a.unsqueeze(1)
    O += O_b * b.unsqueeze(1)
    return O, m, l
