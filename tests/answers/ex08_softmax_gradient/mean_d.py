# kind: one mistake
# what: D is the mean of the row
# shows: N_k > 1
"""ex08_softmax_gradient: my answer."""

import torch


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    D = (P * dP).mean(1, keepdim=True)
    return P * (dP - D)
