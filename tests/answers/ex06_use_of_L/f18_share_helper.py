# kind: right
# what: a helper gives a half's share exp(L_half - m), with a finite stand-in for m where both halves are empty
# shows: -inf in one half, in both, L of several hundreds of either sign
"""ex06_use_of_L · putting two finished halves together with L

Chapter 06 · difficulty 3 of 5 · 15 minutes

FA2 writes O, already divided, and L, the natural-log logsumexp of each row's scores. That one number is enough to merge the
results of two halves of the keys. Decoding and attention over many GPUs are built on it.

    O_a, O_b (N_q, d_v)   L_a, L_b (N_q,)   ->   O (N_q, d_v), L (N_q,)

O and L are what a single pass over all the keys would have written. For one row, L_a is the logarithm of Σ exp(score) over
the keys of half a, and O_a the sum of their values, each weighted by exp(score) and divided by that same Σ.
L may be in the hundreds, of either sign. A query that saw no key of a half has O = 0 and L = -inf there; where it saw none of
either, O = 0 and L = -inf.
Tensors are float32, which is exact enough for the sums too, and no size is 0.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: undo each half's division in thought. What is the sum over all keys divided by, and how large is a half's share of it?
"""

import torch

inf = float("inf")


def share(L_half, reference):
    return torch.exp(L_half - reference)


def combine(O_a, L_a, O_b, L_b):
    """(O, L) of all the keys, from those of each half."""
    m = torch.maximum(L_a, L_b)
    empty = torch.isinf(m) & (m < 0)
    m = torch.where(empty, torch.zeros_like(m), m)

    w_a, w_b = share(L_a, m), share(L_b, m)
    total = w_a + w_b                       # between 1 and 2, or 0 where nothing was seen
    L = torch.log(total) + m                # log 0 = -inf

    total = torch.where(empty, torch.ones_like(total), total)
    O = torch.einsum("i,id->id", w_a / total, O_a) + torch.einsum("i,id->id", w_b / total, O_b)
    return O, L
