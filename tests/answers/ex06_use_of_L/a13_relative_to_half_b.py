# kind: one mistake
# what: everything is taken relative to L_b, whichever is larger: exp(L_a - L_b) overflows; the larger of the two must be the reference
# shows: L_a more than about 88 above L_b (L may be in the hundreds): O is NaN, L is inf; -inf on either side is handled
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
    ratio = torch.exp(L_a - L_b)                  # sum of half a, with that of half b as the unit
    total = 1 + ratio
    O = (ratio[:, None] * O_a + O_b) / total[:, None]
    L = L_b + torch.log(total)

    # half b saw nothing: whatever a has is the answer (O_a = 0, L_a = -inf included)
    only_a = L_b == -inf
    O = torch.where(only_a[:, None], O_a, O)
    L = torch.where(only_a, L_a, L)
    return O, L
