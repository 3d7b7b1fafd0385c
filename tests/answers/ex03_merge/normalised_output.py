# kind: one mistake
# what: the weights are divided by l: O comes back normalised
# shows: O wherever l != 1; m and l are right
"""ex03_merge · my answer."""

import torch

inf = float("inf")


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    m = torch.maximum(m_a, m_b)
    ref = m.masked_fill(m.isneginf(), 0)
    w_a, w_b = torch.exp(m_a - ref), torch.exp(m_b - ref)
    l = w_a * l_a + w_b * l_b
    safe = l.masked_fill(l == 0, 1)
    O = (w_a / safe)[:, None] * O_a + (w_b / safe)[:, None] * O_b
    return O, m, l
