# kind: right
# what: pieces are loaded once, then one score at a time with an if: a new maximum changes the unit, others just add
# shows: reads each score once, at most B at a time; starts at -inf and 0, in x's dtype

"""ex03_online_softmax · maximum and sum in one pass

Chapter 03 · difficulty 2 of 5 · 20 minutes

A row of scores is too long for the chip. Read it once, at most B scores at a time, and keep just two numbers.

    x (N,)   ->   m, the largest score        l, the sum of exp(x_n − m) over all N scores

Every score is a finite number between −1000 and 1000, and N is at least 1: no piece is empty, and none is hidden.
The row is on modelled memory: load(x, part) brings a piece on chip, each byte is counted, and each score may be read once.
x is float32 or float64, m and l are of the same dtype.

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
    for part in tiles(len(x), B):
        piece = load(x, part)
        for k in range(len(piece)):
            s = piece[k]
            if s > m:
                l = l * torch.exp(m - s) + 1      # the new maximum itself is exp(0) = 1
                m = s.clone()
            else:
                l = l + torch.exp(s - m)
    return m, l
