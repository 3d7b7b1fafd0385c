"""ex06_use_of_L · putting two finished halves together with L

Chapter 06 · difficulty 3 of 5 · 15 minutes

FA2 writes O, already divided, and L, the natural-log logsumexp of each row's scores. That one number is enough to merge the
results of two halves of the keys. Decoding and attention over many GPUs are built on it.

    O_a, O_b (N_q, d_v)   L_a, L_b (N_q,)   ->   O (N_q, d_v), L (N_q,)

    L = log(exp(L_a) + exp(L_b))         O = exp(L_a − L) · O_a + exp(L_b − L) · O_b

L may be in the hundreds. A half that saw no key has O = 0 and L = -inf; two of them give O = 0, L = -inf.

Hint: torch.logaddexp takes care of the first formula. What are L_a − L and L_b − L where both are -inf?
"""

import torch

inf = float("inf")


def combine(O_a, L_a, O_b, L_b):
    """(O, L) of all the keys, from those of each half."""
    # your turn: L, the weight of each half, O
    raise NotImplementedError("ex06_use_of_L: L, the weight of each half, O")
