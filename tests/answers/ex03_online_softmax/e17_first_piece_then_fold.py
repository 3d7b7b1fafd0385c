# kind: right
# what: the first piece makes the state, every later piece is folded in; no -inf needed as every piece has finite scores
# shows: each piece of at most B is loaded once; m and l stay float32 tensors without dimensions
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


def piece_state(scores):
    m = scores.max()
    return m, torch.exp(scores - m).sum()


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    first, *others = tiles(x.shape[0], B)
    m, l = piece_state(load(x, first))
    for part in others:
        m_p, l_p = piece_state(load(x, part))
        top = torch.maximum(m, m_p)
        l = torch.exp(m - top) * l + torch.exp(m_p - top) * l_p
        m = top
    return m, l
