# kind: right
# what: half a's share is sigmoid(L_a - L_b), half b's sigmoid(L_b - L_a); L by logaddexp; rows without any key set apart
# shows: the difference of two -inf is the only NaN and is replaced; a half with -inf gets share exactly 0, no overflow at any L

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
    # exp(L_a) / (exp(L_a) + exp(L_b)) = 1 / (1 + exp(L_b - L_a))
    gap = torch.where((L_a == -inf) & (L_b == -inf), torch.zeros_like(L_a), L_a - L_b)
    share_a = torch.sigmoid(gap)
    share_b = torch.sigmoid(-gap)
    O = share_a[:, None] * O_a + share_b[:, None] * O_b       # 0 + 0 where neither saw a key
    return O, torch.logaddexp(L_a, L_b)
