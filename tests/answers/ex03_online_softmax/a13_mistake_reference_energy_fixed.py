# kind: one mistake
# what: all exponentials are shifted by the maximum of the FIRST piece ("the zero of energy is arbitrary") and l is converted to the final maximum once, at the end; the shift has to follow the running maximum, or exp overflows
# shows: a later score more than 88 above the first piece's maximum: exp is inf, and inf * exp(reference - m) is inf or NaN
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
    reference = None
    for part in tiles(x.numel(), B):
        s = load(x, part)
        if reference is None:
            reference = s.amax()                 # any shift cancels in the end
            m = reference
            l = torch.exp(s - reference).sum()
        else:
            m = torch.maximum(m, s.amax())
            l = l + torch.exp(s - reference).sum()
    # from units of exp(reference) into units of exp(m)
    return m, l * torch.exp(reference - m)
