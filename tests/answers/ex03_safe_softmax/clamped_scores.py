# kind: one mistake
# what: scores are clamped to [-80, 80] before, to stop overflow
# shows: scores in the hundreds
"""ex03_safe_softmax: my answer."""

import torch

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    S = S.clamp(-80, 80).masked_fill(S == -inf, -inf)
    m = S.max(dim=1, keepdim=True).values
    m = m.masked_fill(m == -inf, 0)
    E = torch.exp(S - m)
    l = E.sum(dim=1, keepdim=True)
    return E / l.masked_fill(l == 0, 1)
