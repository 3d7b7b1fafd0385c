# kind: right
# what: the first piece gives m and l, every other piece is a state of its own that is merged
# shows: each piece is loaded once, the larger maximum is the unit of both sums
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


def state_of(piece):
    m = piece.max()
    return m, torch.exp(piece - m).sum()


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    first, *others = tiles(x.numel(), B)
    m, l = state_of(load(x, first))
    for part in others:
        m_j, l_j = state_of(load(x, part))
        if m_j > m:
            l = l * torch.exp(m - m_j) + l_j
            m = m_j
        else:
            l = l + l_j * torch.exp(m_j - m)
    return m, l
