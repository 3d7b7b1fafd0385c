# kind: right
# what: each piece gets its own maximum and sum, which are then merged into the running ones; while loop with min instead of tiles
# shows: both sums are brought to the unit of the larger maximum; the first merge has exp(-inf) = 0; one read a score

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

from flashlab.memory import load

inf = float("inf")


def _of_piece(p):
    top = p.max()
    return top, (p - top).exp().sum()


def _merged(m1, l1, m2, l2):
    top = torch.maximum(m1, m2)
    return top, l1 * (m1 - top).exp() + l2 * (m2 - top).exp()


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    N = x.shape[0]
    m, l = torch.full((), -inf, dtype=x.dtype), torch.zeros((), dtype=x.dtype)
    start = 0
    while start < N:
        stop = min(start + B, N)
        m, l = _merged(m, l, *_of_piece(load(x, slice(start, stop))))
        start = stop
    return m, l
