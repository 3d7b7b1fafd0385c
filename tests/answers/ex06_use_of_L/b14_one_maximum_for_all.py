# kind: one mistake
# what: the shift is one number, the largest L of all rows; it should be the larger of the two L in each row
# shows: two rows whose L differ by more than about 104: in the lower one both weights underflow, and it comes out as if it had seen no key (O = 0, L = -inf)
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
    top = max(L_a.max().item(), L_b.max().item())          # against overflow
    if top == -inf:
        return torch.zeros_like(O_a), torch.full_like(L_a, -inf)

    w_a = (L_a - top).exp()
    w_b = (L_b - top).exp()
    total = w_a + w_b

    divisor = torch.where(total > 0, total, torch.ones_like(total))
    O = (O_a * w_a.unsqueeze(-1) + O_b * w_b.unsqueeze(-1)) / divisor.unsqueeze(-1)
    L = torch.log(total) + top
    return O, L
