# kind: one mistake
# what: a piece is added to l only if it brings a new maximum; the pieces with smaller scores are forgotten (an else that adds them is missing)
# shows: any row whose later piece does not exceed the maximum so far, e.g. x = [1, 0], B = 1: l = 1 instead of 1.37
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
    m = torch.tensor(-inf)
    l = torch.tensor(0.0)
    for part in tiles(len(x), B):
        piece = load(x, part)
        m_piece = piece.amax()
        if m_piece > m:
            # new maximum: the old sum changes its unit
            l = l * torch.exp(m - m_piece) + torch.exp(piece - m_piece).sum()
            m = m_piece
    return m, l
