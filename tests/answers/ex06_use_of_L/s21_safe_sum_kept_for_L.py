# kind: one mistake
# what: the sum is replaced by 1 where it is 0, for the division, and the same safe sum goes into L: L = 0 + log 1 = 0 where neither half has a key, should be -inf
# shows: a row with L_a = L_b = -inf
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
    m = torch.maximum(L_a, L_b)
    m = m.masked_fill(m == -inf, 0)             # -inf - (-inf) would be nan
    a = torch.exp(L_a - m)
    b = torch.exp(L_b - m)
    total = a + b
    total = total.masked_fill(total == 0, 1)    # no key at all: do not divide by 0
    O = (a[:, None] * O_a + b[:, None] * O_b) / total[:, None]
    L = m + torch.log(total)
    return O, L
