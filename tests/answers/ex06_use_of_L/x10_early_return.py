# kind: one mistake
# what: an early return for the empty half asks whether any row is empty and then gives back the other half for all rows; it has to be decided row by row
# shows: L_a (or L_b) is -inf in some rows and finite in others, as with a causal mask: the other rows lose their half

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


def has_no_keys(L):
    return torch.isinf(L).any()


def combine_non_empty(O_a, L_a, O_b, L_b):
    both = torch.stack([L_a, L_b])
    share_a, share_b = torch.softmax(both, dim=0)
    O = share_a[:, None] * O_a + share_b[:, None] * O_b
    return O, torch.logsumexp(both, dim=0)


def combine(O_a, L_a, O_b, L_b):
    """(O, L) of all the keys, from those of each half."""
    if has_no_keys(L_a):
        return O_b.clone(), L_b.clone()
    if has_no_keys(L_b):
        return O_a.clone(), L_a.clone()
    return combine_non_empty(O_a, L_a, O_b, L_b)
