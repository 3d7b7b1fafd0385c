# kind: right
# what: with two halves the softmax of (L_a, L_b) is a sigmoid of their difference; equal L's, also both -inf, share half and half
# shows: no exponential of L itself, so hundreds of either sign are fine; -inf on one side gives shares 1 and 0, on both O = 0 and L = -inf
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


def share(L_mine, L_other):
    """exp(L_mine) / (exp(L_mine) + exp(L_other)), (N_q, 1)."""
    same = L_mine == L_other                             # -inf == -inf is True, too: there O is 0 in both
    gap = torch.where(same, torch.zeros_like(L_mine), L_mine - L_other)
    return torch.sigmoid(gap)[:, None]


def combine(O_a, L_a, O_b, L_b):
    """(O, L) of all the keys, from those of each half."""
    O = share(L_a, L_b) * O_a + share(L_b, L_a) * O_b
    L = torch.logaddexp(L_a, L_b)
    return O, L
