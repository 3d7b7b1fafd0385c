# kind: right
# what: keeps log of the sum in place of l: for large scores the digits of l are lost
# shows: scores in the ten thousands and beyond (float32): l wrong in the third digit, at 1e8 it is 1; small scores are right
# note: the stub's domain, scores between −1000 and 1000, allows it
"""ex03_online_softmax · my answer."""

import torch

from flashlab.memory import load, tiles

inf = float("inf")


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    m = torch.full((), -inf, dtype=x.dtype)
    L = torch.full((), -inf, dtype=x.dtype)                # log of the sum of exp(score)
    for part in tiles(len(x), B):
        piece = load(x, part)
        top = piece.amax()
        L = torch.logaddexp(L, top + torch.log(torch.exp(piece - top).sum()))
        m = torch.maximum(m, top)
    return m, torch.exp(L - m)
