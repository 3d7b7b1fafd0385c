# kind: one mistake
# what: O_a and l_a are rescaled in place with *= (the caller's state changes)
# shows: inputs after the call
"""ex03_merge: my answer."""

import torch

inf = float("inf")


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    m = torch.maximum(m_a, m_b)
    safe = m.masked_fill(m == -inf, 0)
    O_a *= torch.exp(m_a - safe)[:, None]
    l_a *= torch.exp(m_a - safe)
    w = torch.exp(m_b - safe)
    return O_a + w[:, None] * O_b, m, l_a + w * l_b
