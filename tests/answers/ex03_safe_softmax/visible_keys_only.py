# kind: right
# what: hidden entries set to 0 by where, division by a clamped sum that is at least 1
"""ex03_safe_softmax · my answer."""

import torch

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    seen = S > -inf
    low = torch.finfo(S.dtype).min
    m = torch.where(seen, S, low).amax(dim=1, keepdim=True)
    W = torch.where(seen, torch.exp(torch.where(seen, S - m, 0)), 0)
    return W / W.sum(dim=1, keepdim=True).clamp(min=1)     # the largest weight is 1, so only empty rows are below
