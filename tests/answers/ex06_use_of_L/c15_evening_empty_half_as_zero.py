# kind: one mistake
# what: -inf in L_a and L_b is replaced by 0 before the merge, which says "a sum of 1"; an empty half's sum is 0, its weight must be 0
# shows: rows where exactly one half saw no key: the other half's O is diluted by an empty one and L is log(1 + exp(L))
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
    nothing = (L_a == -inf) & (L_b == -inf)

    # avoid -inf - (-inf) = nan further down
    safe_a = torch.where(L_a == -inf, torch.zeros_like(L_a), L_a)
    safe_b = torch.where(L_b == -inf, torch.zeros_like(L_b), L_b)

    top = torch.maximum(safe_a, safe_b)
    w_a = torch.exp(safe_a - top)
    w_b = torch.exp(safe_b - top)
    total = w_a + w_b

    O = (w_a.unsqueeze(-1) * O_a + w_b.unsqueeze(-1) * O_b) / total.unsqueeze(-1)
    L = top + torch.log(total)

    O = O.masked_fill(nothing.unsqueeze(-1), 0.0)
    L = L.masked_fill(nothing, -inf)
    return O, L
