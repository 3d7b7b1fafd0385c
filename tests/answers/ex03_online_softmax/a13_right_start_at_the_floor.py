# kind: right
# what: a while loop with slices of its own; m starts at -1000, which no score is below, and l at 0, so the start needs no special case
# shows: with l = 0 the first conversion gives 0 whatever m was, and the maximum of m and any score in the domain is the score; each score is loaded once, at most B at a time
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
    N = x.shape[0]
    m = torch.full((), -1000.0, device=x.device)
    l = torch.full((), 0.0, device=x.device)
    n = 0
    while n < N:
        stop = min(n + B, N)
        s = load(x, slice(n, stop))
        m_old = m
        m = torch.maximum(m_old, s.max())
        l = l * (m_old - m).exp() + (s - m).exp().sum()
        n = stop
    return m, l
