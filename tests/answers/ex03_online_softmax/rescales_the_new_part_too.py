# kind: one mistake
# what: the new piece's sum, already in units of exp(m_new), is added first, and the factor exp(m - m_new) then multiplies both; it belongs to the old l alone
# shows: any later piece that brings a larger maximum
"""ex03_online_softmax · maximum and sum in one pass

Chapter 03 · difficulty 2 of 5 · 20 minutes

A row of scores is too long for the chip. Read it once, at most B scores at a time, and keep just two numbers.

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
    m = None
    for part in tiles(len(x), B):
        xs = load(x, part)
        if m is None:
            m = torch.amax(xs)
            l = torch.exp(xs - m).sum()
        else:
            m_new = torch.maximum(m, torch.amax(xs))
            l += torch.exp(xs - m_new).sum()
            l *= torch.exp(m - m_new)
            m = m_new
    return m, l
