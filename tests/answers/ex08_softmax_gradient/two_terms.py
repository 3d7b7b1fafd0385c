# kind: right
# what: the split sum as it comes off the paper: P dP minus P times its row sum, addcmul
"""ex08_softmax_gradient · the gradient of a softmax"""

import torch


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    weighted = P * dP
    total = torch.einsum("qk->q", weighted)[:, None]
    return torch.addcmul(weighted, P, total, value=-1)
