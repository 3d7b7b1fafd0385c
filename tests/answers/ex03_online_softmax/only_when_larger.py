# kind: right
# what: a branch: l is rescaled only when a piece brings a larger score; the first piece starts m and l
"""ex03_online_softmax · my answer."""

import torch

from flashlab.memory import load, tiles

inf = float("inf")


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    m = l = None
    for part in tiles(x.shape[0], B):
        piece = load(x, part)
        top = piece.max()
        if m is None:
            m, l = top, torch.exp(piece - top).sum()
            continue
        if top > m:
            l = l * torch.exp(m - top)
            m = top
        l = l + torch.exp(piece - m).sum()
    return m, l
