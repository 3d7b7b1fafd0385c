# kind: right
# what: both halves are stacked and treated as a softmax over two entries, shifted by the larger L (0 where both are -inf)
# shows: exponents are <= 0, so no overflow; an empty half gets weight exp(-inf) = 0; where both are empty the sum 0 is replaced by 1 for the division only, log 0 = -inf
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
    Ls = torch.stack([L_a, L_b])                       # (2, N_q)
    Os = torch.stack([O_a, O_b])                       # (2, N_q, d_v)
    top = Ls.amax(dim=0)
    top = top.masked_fill(top == -inf, 0.0)
    e = torch.exp(Ls - top)                            # the halves' sums, in units of exp(top)
    total = e.sum(dim=0)
    share = e / total.masked_fill(total == 0, 1.0)
    return torch.einsum("hn,hnv->nv", share, Os), top + torch.log(total)
