# kind: right
# what: pieces of half of B, each with its own maximum and sum, merged into the running two numbers; the first piece starts them
# shows: fewer than B scores at a time are allowed; each score is loaded once; all exponents are <= 0; float32 tensors without dimensions

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

from flashlab.memory import load


def _state(piece):
    m = piece.max()
    return m, (piece - m).exp().sum()


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    N = x.shape[0]
    width = (B + 1) // 2
    m, l = _state(load(x, slice(0, min(width, N))))
    start = width
    while start < N:
        m_p, l_p = _state(load(x, slice(start, min(start + width, N))))
        if m_p > m:
            l = l * torch.exp(m - m_p) + l_p
            m = m_p
        else:
            l = l + l_p * torch.exp(m_p - m)
        start += width
    return m, l
