# kind: one mistake
# what: walks N // B pieces, so the short last one is never read; it should be rounded up (tiles does it)
# shows: B does not divide N; with N < B nothing at all is read and m stays -inf
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
    N = x.shape[0]
    m = torch.tensor(-inf, dtype=x.dtype)
    l = torch.tensor(0.0, dtype=x.dtype)
    for k in range(N // B):
        s = load(x, slice(k * B, (k + 1) * B))
        m_old = m
        m = torch.max(m_old, s.max())
        l *= torch.exp(m_old - m)
        l += torch.exp(s - m).sum()
    return m, l
