# kind: two mistakes
# what: the shifted scores are clamped at -20 'for safety'; and rows that are -inf throughout give NaN
# shows: hidden keys get the weight 2e-9 and not 0; a row of -inf gives NaN
"""ex03_safe_softmax · my answer."""

import torch

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    m, _ = S.max(dim=-1, keepdim=True)
    E = torch.clamp(S - m, min=-20).exp()
    return E / E.sum(dim=-1, keepdim=True)
