# kind: right
# what: einsum over the named axes, helper for both
"""ex08_matmul_gradient · the gradient of a matrix product"""

import torch


def contract(how, *tensors):
    return torch.einsum(how, *tensors).contiguous()


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    return contract("nm,km->nk", dY, W), contract("nk,nm->km", X, dY)
