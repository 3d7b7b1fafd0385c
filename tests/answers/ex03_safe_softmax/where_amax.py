# kind: right
# what: torch.where at the end, nan rows replaced after the quotient
"""ex03_safe_softmax: my answer."""

import torch

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    top = S.amax(-1)[:, None]
    e = (S - top).exp()
    p = e / e.sum(-1)[:, None]
    return torch.where(top.isinf(), torch.zeros_like(p), p)
