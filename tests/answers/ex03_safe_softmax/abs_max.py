# kind: one mistake
# what: the row maximum is taken of abs(S)
# shows: large negative scores: everything underflows; -inf gives inf shift
"""ex03_safe_softmax: my answer."""

import torch

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    m = S.abs().max(dim=1, keepdim=True).values
    m = m.masked_fill(m == -inf, 0)
    E = torch.exp(S - m)
    l = E.sum(dim=1, keepdim=True)
    return E / l.masked_fill(l == 0, 1)
