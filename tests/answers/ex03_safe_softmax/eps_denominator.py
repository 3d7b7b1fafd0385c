# kind: one mistake
# what: 1e-6 is added to the sum, and empty rows pass because 0/1e-6 = 0
# shows: rows sum to 1 - 1e-6 (shows in float64)
"""ex03_safe_softmax: my answer."""

import torch

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    m = S.max(dim=1, keepdim=True).values
    m = m.masked_fill(m == -inf, 0)
    E = torch.exp(S - m)
    l = E.sum(dim=1, keepdim=True)
    return E / (l + 1e-6)
