# kind: one mistake
# what: each piece's sum is shifted by the piece's own maximum and added as it is; where that is below the running m it should be shifted by m
# shows: a later piece whose maximum is smaller than an earlier one's: l too large
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
    m = torch.full((), -inf)
    l = torch.full((), 0.0)
    for part in tiles(len(x), B):
        chunk = load(x, part)
        peak = chunk.amax()
        # a new record? then what we have so far shrinks, otherwise it stays as it is
        shrink = torch.exp(torch.clamp(m - peak, max=0.0))
        l = l * shrink + torch.exp(chunk - peak).sum()
        m = torch.maximum(m, peak)
    return m, l
