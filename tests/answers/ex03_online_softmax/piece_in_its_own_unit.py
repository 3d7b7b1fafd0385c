# kind: one mistake
# what: where a piece's maximum is not larger, its exponentials are shifted by the piece's maximum and added to l, which counts in
#       units of the running maximum; they should be shifted by m
# shows: a later piece whose largest score is below the one so far: l too large

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
    m = torch.full((), -inf, dtype=x.dtype)
    l = torch.zeros((), dtype=x.dtype)
    for part in tiles(len(x), B):
        x_part = load(x, part)
        m_part = x_part.amax()
        l_part = torch.exp(x_part - m_part).sum()
        if m_part > m:
            l = l * torch.exp(m - m_part) + l_part
            m = m_part
        else:
            l = l + l_part
    return m, l
