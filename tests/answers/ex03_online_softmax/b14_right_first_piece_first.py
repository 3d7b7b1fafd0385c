# kind: right
# what: starts from the first piece in place of -inf and 0, then walks on by hand-made slices
# shows: N >= 1, so there is a first piece; each score is loaded once, in pieces of at most B; l changes its unit with m
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


def piece_stats(piece):
    m = piece.max()
    return m, torch.exp(piece - m).sum()


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    N = x.shape[0]
    m, l = piece_stats(load(x, slice(0, min(B, N))))
    at = B
    while at < N:
        m_here, l_here = piece_stats(load(x, slice(at, min(at + B, N))))
        both = torch.maximum(m, m_here)
        l = l * torch.exp(m - both) + l_here * torch.exp(m_here - both)
        m = both
        at += B
    return m, l
