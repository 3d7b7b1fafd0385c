# kind: right
# what: the dot product of each row as a batched matrix product
"""ex08_softmax_gradient · the gradient of a softmax"""

import torch


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    D = torch.bmm(P.unsqueeze(1), dP.unsqueeze(2)).squeeze(2)      # (N_q, 1)
    return P * dP.sub(D)
