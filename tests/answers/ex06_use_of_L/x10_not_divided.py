# kind: one mistake
# what: the halves are added with exp(L - max) as weights, but the sum is not divided by the total of the weights
# shows: every row whose two L are near each other: O is up to twice too large (right only where one half has all the weight)

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


def safe_max(L_a, L_b):
    maximum = torch.maximum(L_a, L_b)
    return torch.where(maximum == -inf, torch.zeros_like(maximum), maximum)


def weight_of(L, maximum):
    return torch.exp(L - maximum)


def weighted(O, weight):
    return O * weight.unsqueeze(-1)


def total_logsumexp(weights, maximum):
    return maximum + torch.log(sum(weights))


def combine(O_a, L_a, O_b, L_b):
    """(O, L) of all the keys, from those of each half."""
    maximum = safe_max(L_a, L_b)
    w_a, w_b = weight_of(L_a, maximum), weight_of(L_b, maximum)
    O = weighted(O_a, w_a) + weighted(O_b, w_b)
    return O, total_logsumexp((w_a, w_b), maximum)
