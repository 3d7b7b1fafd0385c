# kind: right
# what: the first piece gives m and l their first values, so nothing has to start at -inf; the larger of old and new decides which side is converted
# shows: within the contract: B above N, B = 1, short last piece, rising, falling and equal scores; each score loaded once
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
    first, *others = tiles(len(x), B)

    piece = load(x, first)
    m = piece.max()
    l = (piece - m).exp().sum()

    for part in others:
        piece = load(x, part)
        top = piece.max()
        s = (piece - top).exp().sum()             # this piece in its own units
        if top > m:
            l = l * (m - top).exp() + s
            m = top
        else:
            l = l + s * (top - m).exp()
    return m, l
