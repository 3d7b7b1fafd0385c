# kind: one mistake
# what: O_a and O_b are multiplied by their shares in place, so the caller's halves are changed
# shows: the results are right, O_a and O_b are other tensors afterwards; a second call with the same halves is wrong
"""ex06_use_of_L · putting two finished halves together with L"""

import torch

inf = float("inf")


def combine(O_a, L_a, O_b, L_b):
    """(O, L)."""
    L = torch.logaddexp(L_a, L_b)
    none = L == -inf
    for O_half, L_half in ((O_a, L_a), (O_b, L_b)):
        share = torch.exp(L_half - L).masked_fill(none, 0)
        O_half *= share[:, None]
    return O_a + O_b, L
