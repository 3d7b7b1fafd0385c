# kind: one mistake
# what: when a larger maximum comes, l starts again with the new piece's sum and what was summed before is thrown away; it should be multiplied by exp(m - m_new) and kept
# shows: a new maximum after the first piece that is not far above the old one (rising scores, B < N)
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


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    m = torch.tensor(-inf, dtype=x.dtype)
    l = torch.tensor(0.0, dtype=x.dtype)
    for part in tiles(x.numel(), B):
        piece = load(x, part)
        biggest = piece.max()
        if biggest > m:
            m = biggest
            l = (piece - m).exp().sum()
        else:
            l = l + (piece - m).exp().sum()
    return m, l
