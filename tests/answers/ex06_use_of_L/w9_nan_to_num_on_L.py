# kind: one mistake
# what: nan_to_num cleans both results at the end; for L it also turns -inf into -3.4e38, which has to stay -inf
# shows: a query that saw no key in either half
"""ex06_use_of_L · putting two finished halves together with L

Chapter 06 · difficulty 3 of 5 · 15 minutes

FA2 writes O, already divided, and L, the natural-log logsumexp of each row's scores. That one number is enough to merge the
results of two halves of the keys. Decoding and attention over many GPUs are built on it.

    O_a, O_b (N_q, d_v)   L_a, L_b (N_q,)   ->   O (N_q, d_v), L (N_q,)

O and L are what a single pass over all the keys would have written. For one row, L_a is the logarithm of Σ exp(score) over
the keys of half a, and O_a the sum of their values, each weighted by exp(score) and divided by that same Σ.
L may be in the hundreds, of either sign. A query that saw no key of a half has O = 0 and L = -inf there; where it saw none of
either, O = 0 and L = -inf.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: undo each half's division in thought. What is the sum over all keys divided by, and how large is a half's share of it?
"""

import torch

inf = float("inf")


def combine(O_a, L_a, O_b, L_b):
    """(O, L) of all the keys, from those of each half."""
    big = torch.maximum(L_a, L_b)
    e_a = torch.exp(L_a - big)
    e_b = torch.exp(L_b - big)
    s = e_a + e_b
    L = big + torch.log(s)
    O = (e_a[:, None] * O_a + e_b[:, None] * O_b) / s[:, None]
    # rows that saw nothing: -inf - -inf = nan
    L = torch.where(torch.isnan(L), big, L)
    return torch.nan_to_num(O), torch.nan_to_num(L)
