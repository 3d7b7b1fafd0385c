# kind: two mistakes
# what: sum over dim 0 (columns) with keepdim, and no guard for empty rows
# shows: more than one row
"""ex03_safe_softmax: my answer."""

import torch

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    m = S.max(dim=1, keepdim=True).values
    E = torch.exp(S - m)
    l = E.sum(dim=0, keepdim=True)
    return E / l.masked_fill(l == 0, 1)
