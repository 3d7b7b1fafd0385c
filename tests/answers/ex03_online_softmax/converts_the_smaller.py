# kind: right
# what: starts from the first piece, and then converts whichever is in the smaller unit: the sum so far or the new piece's sum
# shows: N >= 1, so there is a first piece; both exponents are at most 0; every score is loaded once, in pieces of at most B
"""ex03_online_softmax · maximum and sum in one pass

Chapter 03 · difficulty 2 of 5 · 20 minutes

A row of scores is too long for the chip. Read it once, at most B scores at a time, and keep just two numbers.

    x (N,)   ->   m, the largest score        l, the sum of exp(x_n − m) over all N scores

Every score is a finite number between −1000 and 1000, and N is at least 1: no piece is empty, and none is hidden.
The row is on modelled memory: load(x, part) brings a piece on chip, each byte is counted, and each score may be read once.

Not allowed: changing the inputs, pieces of more than B scores, the finished function from flashlab or solutions/.

Hint: l counts in units of exp(m). When m becomes m_new, the unit changes. What has to happen to l?
"""

import torch

from flashlab.memory import load, tiles

inf = float("inf")


def summary(piece):
    top = piece.max()
    return top, torch.sum(torch.exp(piece - top))


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    first, *others = tiles(x.shape[0], B)
    m, l = summary(load(x, first))
    for part in others:
        top, total = summary(load(x, part))
        if top > m:
            l = l * torch.exp(m - top) + total
            m = top
        else:
            l = l + total * torch.exp(top - m)
    return m, l
