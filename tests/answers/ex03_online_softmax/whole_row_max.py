# kind: point missed
# what: two passes: first all pieces for the maximum, then again for the sum
# shows: numbers right; every score read twice
"""ex03_online_softmax: my answer."""

import torch

from flashlab.memory import load, tiles

inf = float("inf")


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    m = max(load(x, part).max() for part in tiles(len(x), B))
    l = sum(torch.exp(load(x, part) - m).sum() for part in tiles(len(x), B))
    return m, l
