# kind: one mistake
# what: both L are measured from their midpoint, which lets the larger one overflow; they should be measured from their maximum
# shows: rows whose two L are finite and more than about 178 apart, for example 300 and -300: exp gives inf, O is nan and L is inf
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


def combine(O_a, L_a, O_b, L_b):
    """(O, L) of all the keys, from those of each half."""
    only_b = L_a == -inf
    only_a = L_b == -inf
    both = ~only_a & ~only_b

    # symmetric in a and b: take the centre as the origin
    centre = torch.where(both, (L_a + L_b) / 2, 0.0)
    Z_a = torch.exp(torch.where(both, L_a, 0.0) - centre)
    Z_b = torch.exp(torch.where(both, L_b, 0.0) - centre)

    O = (Z_a[:, None] * O_a + Z_b[:, None] * O_b) / (Z_a + Z_b)[:, None]
    L = centre + torch.log(Z_a + Z_b)

    O = torch.where(only_b[:, None], O_b, torch.where(only_a[:, None], O_a, O))
    L = torch.where(only_b, L_b, torch.where(only_a, L_a, L))
    return O, L
