# kind: one mistake
# what: 1e-6 added to the sum against 0/0
# shows: rows sum to 1 - 1e-6/l: seen in float64, and in float32 at ten times the rounding
"""ex03_safe_softmax · my answer."""

import torch

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    m = S.amax(-1, keepdim=True)
    m = m.masked_fill(m == -inf, 0)
    E = (S - m).exp()
    return E / (E.sum(-1, keepdim=True) + 1e-6)
