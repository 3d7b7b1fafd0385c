# kind: one mistake
# what: the halves are weighted by L_a and L_b themselves, but L is a logarithm: the weights are exp(L_a) and exp(L_b) over their sum
# shows: always where L_a != L_b; with -inf NaN or wrong
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
    L = torch.logaddexp(L_a, L_b)
    total = L_a + L_b
    empty_a, empty_b = L_a == -inf, L_b == -inf
    w_a = torch.where(empty_b, 1.0, L_a / total)
    w_b = torch.where(empty_a, 1.0, L_b / total)
    w_a = torch.where(empty_a, 0.0, w_a)
    w_b = torch.where(empty_b, 0.0, w_b)
    O = w_a.unsqueeze(-1) * O_a + w_b.unsqueeze(-1) * O_b
    return O, L
