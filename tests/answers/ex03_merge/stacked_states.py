# kind: right
# what: both states stacked, one weighted sum over the new dimension
"""ex03_merge · my answer."""

import torch

inf = float("inf")


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O, m, l = (torch.stack(pair) for pair in zip(state_a, state_b))
    top = m.amax(0)
    unit = torch.where(top.isinf(), torch.zeros_like(top), top)
    w = (m - unit).exp()                                   # (2, N_q)
    return torch.einsum("sn,snd->nd", w, O), top, (w * l).sum(0)
