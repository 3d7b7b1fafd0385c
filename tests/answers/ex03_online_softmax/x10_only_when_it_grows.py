# kind: right
# what: starts from the first piece; l is rescaled only where a piece brings a larger maximum; pieces by while and min
# shows: each piece is loaded once, at most B scores; without a larger maximum the factor is exp(0) = 1, so leaving it out changes nothing

"""ex03_online_softmax · maximum and sum in one pass

Chapter 03 · difficulty 2 of 5 · 20 minutes

A row of scores is too long for the chip. Read it once, at most B scores at a time (fewer
are allowed), and keep just two numbers from one piece to the next.

    x (N,)   ->   m, the largest score        l, the sum of exp(x_n − m) over all N scores

Every score is a finite number between −1000 and 1000, and N is at least 1: no piece is empty, and none is hidden.
The row is on modelled memory: load(x, part) brings a piece on chip, each byte is counted, and each score may be read once.
x is float32, and so are m and l.

Not allowed: changing the inputs, pieces of more than B scores, the finished function from flashlab or solutions/.

Hint: l counts in units of exp(m). When m becomes m_new, the unit changes. What has to happen to l?
"""

import torch

from flashlab.memory import load, tiles

inf = float("inf")


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    N = x.shape[0]
    piece = load(x, slice(0, min(B, N)))
    m = piece.max()
    l = torch.exp(piece - m).sum()
    start = B
    while start < N:
        piece = load(x, slice(start, min(start + B, N)))
        top = piece.max()
        if top > m:
            l = l * torch.exp(m - top)
            m = top
        l = l + torch.exp(piece - m).sum()
        start = start + B
    return m, l
