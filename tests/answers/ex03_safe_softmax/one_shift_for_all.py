# kind: one mistake
# what: the largest score of the whole matrix shifts every row
# shows: rows whose scores all lie about 100 or more below another row's maximum: zeros in float32
"""ex03_safe_softmax · my answer."""

import torch

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    top = S.max()
    E = torch.exp(S - top) if top > -inf else torch.zeros_like(S)
    l = E.sum(1, keepdim=True)
    l[l == 0] = 1
    return E / l
