# kind: right
# what: Python's math, one row at a time, the larger L first; a half without keys is skipped
# shows: the sums are made of exp(L_half - larger), between 1 and 2; rows that saw nothing keep the 0 and -inf they start with

"""ex06_use_of_L · putting two finished halves together with L

Chapter 06 · difficulty 3 of 5 · 15 minutes

FA2 writes O, already divided, and L, the natural-log logsumexp of each row's scores. That one number is enough to merge the
results of two halves of the keys. Decoding and attention over many GPUs are built on it.

    O_a, O_b (N_q, d_v)   L_a, L_b (N_q,)   ->   O (N_q, d_v), L (N_q,)

O and L are what a single pass over all the keys would have written. For one row, L_a is the logarithm of Σ exp(score) over
the keys of half a, and O_a the sum of their values, each weighted by exp(score) and divided by that same Σ.
L may be in the hundreds, of either sign. A query that saw no key of a half has O = 0 and L = -inf there; where it saw none of
either, O = 0 and L = -inf.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: undo each half's division in thought. What is the sum over all keys divided by, and how large is a half's share of it?
"""

import math

import torch

inf = float("inf")


def combine(O_a, L_a, O_b, L_b):
    """(O, L) of all the keys, from those of each half."""
    O = torch.zeros_like(O_a)
    L = torch.full_like(L_a, -inf)
    for n in range(len(L_a)):
        a, b = L_a[n].item(), L_b[n].item()
        if a == -inf and b == -inf:
            continue
        if a == -inf:
            O[n], L[n] = O_b[n], b
            continue
        if b == -inf:
            O[n], L[n] = O_a[n], a
            continue
        top = max(a, b)
        ea, eb = math.exp(a - top), math.exp(b - top)
        O[n] = (ea * O_a[n] + eb * O_b[n]) / (ea + eb)
        L[n] = top + math.log(ea + eb)
    return O, L
