"""ex06_use_of_L · putting two finished halves together with L

Chapter 06 · difficulty 3 of 5 · 15 minutes

FA2 writes O, already divided, and L, the natural-log logsumexp of each row's scores. L is enough to combine the results
for two halves of the keys. Decoding and attention on many GPUs rely on it.

    O_a, O_b (N_q, d_v)   L_a, L_b (N_q,)   ->   O (N_q, d_v), L (N_q,)

Return the O and L that one pass over all the keys would have written. For one row, L_a is the logarithm of
Σ exp(score) over the keys of half a. O_a is the sum of their values, each weighted by exp(score) and divided by that Σ.
L may be in the hundreds, of either sign. If a query saw no key of a half, its O is 0 and its L is -inf there. If it saw
no key at all, return 0 and -inf. Tensors are float32, which is exact enough for the sums too, and no size is 0.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: undo each half's division in thought. What is the sum over all keys divided by, and how large is a half's share of
it?
"""

import torch

inf = float("inf")


def combine(O_a, L_a, O_b, L_b):
    """(O, L) of all the keys, from those of each half."""
    # >>> your turn: L, the weight of each half, O
    L = torch.logaddexp(L_a, L_b)                                   # (N_q,)
    L_safe = L.masked_fill(L == -inf, 0)                            # (N_q,)  neither half saw a key
    w_a, w_b = torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)     # (N_q,)  they sum to 1
    return w_a[:, None] * O_a + w_b[:, None] * O_b, L
    # <<<
