# kind: one mistake
# what: the old l is rescaled to m_new, but the new piece's sum is taken with the piece's own maximum; it should be exp(piece − m_new)
# shows: a later piece whose largest score is below the maximum so far, e.g. [5, 0] with B = 1

"""ex03_online_softmax · maximum and sum in one pass

Chapter 03 · difficulty 2 of 5 · 20 minutes

A row of scores is too long for the chip. Read it once, at most B scores at a time (fewer
are allowed), and keep just two numbers from one piece to the next.

    x (N,)   ->   m, the largest score        l, the sum of exp(x_n − m) over all N scores

Every score is a finite number between −1000 and 1000, and N is at least 1: no piece is empty, and none is hidden.
The row is on modelled memory: load(x, part) brings a piece on chip, each byte is counted, and each score may be read once.
x is float32, and so are m and l.

Not allowed: changing the inputs, pieces of more than B scores, keeping anything on chip that grows with N, the finished function
from flashlab or solutions/.

Hint: l counts in units of exp(m). When m becomes m_new, the unit changes. What has to happen to l?
"""

import torch

from flashlab.memory import load, tiles

inf = float("inf")


def local(piece):
    """Maximum and sum of a piece."""
    top = piece.amax()
    return top, torch.exp(piece - top).sum()


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    m, l = torch.full((), -inf), torch.zeros(())
    for part in tiles(len(x), B):
        top, s = local(load(x, part))
        m_new = torch.maximum(m, top)
        l = torch.exp(m - m_new) * l + s
        m = m_new
    return m, l
