# kind: one mistake
# what: the maximum made safe (0 for -inf) is also what is returned
# shows: rows where both halves saw no key: m is 0 and not -inf
"""ex03_merge · my answer."""

import torch

inf = float("inf")


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    m = torch.maximum(m_a, m_b)
    m = m.masked_fill(m == -inf, 0)                        # -inf − -inf would be NaN
    alpha, beta = torch.exp(m_a - m), torch.exp(m_b - m)
    l = alpha * l_a + beta * l_b
    O = alpha[:, None] * O_a + beta[:, None] * O_b
    return O, m, l
