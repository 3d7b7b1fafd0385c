# kind: right
# what: einsum
"""ex08_matmul_gradient: my answer."""

import torch


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    dX = torch.einsum("nm,km->nk", dY, W)
    dW = torch.einsum("nk,nm->km", X, dY)
    return dX, dW
