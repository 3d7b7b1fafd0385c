# kind: one mistake
# what: the shift is the maximum, but at least 0 (that also takes care of -inf)
# shows: rows whose scores are all below about -104 (float32): zeros; between -88 and -104 few digits are right
"""ex03_safe_softmax · my answer."""

import torch

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    m = S.amax(dim=-1, keepdim=True).clamp(min=0)
    E = torch.exp(S - m)
    l = E.sum(dim=-1, keepdim=True)
    return torch.where(l > 0, E / l, torch.zeros_like(E))
