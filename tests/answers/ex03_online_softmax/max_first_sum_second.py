# kind: point missed
# what: two passes: the maximum, then the sum
# shows: numbers right; each score is read twice
"""ex03_online_softmax · my answer."""

import torch

from flashlab.memory import load, tiles

inf = float("inf")


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    m = torch.full((), -inf, dtype=x.dtype)
    for part in tiles(len(x), B):
        m = torch.maximum(m, load(x, part).amax())
    l = torch.zeros((), dtype=x.dtype)
    for part in tiles(len(x), B):
        l = l + torch.exp(load(x, part) - m).sum()
    return m, l
