# kind: one mistake
# what: dP -= D changes the input dP
# shows: dP after the call
"""ex08_softmax_gradient: my answer."""

import torch


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    D = torch.einsum("ij,ij->i", P, dP)
    dP -= D[:, None]
    return P * dP
