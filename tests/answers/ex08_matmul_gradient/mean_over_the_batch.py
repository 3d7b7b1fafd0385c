# kind: one mistake
# what: dW is divided by the number of rows, as if the loss were a mean
# shows: dW for every N > 1; right for N = 1
"""ex08_matmul_gradient · the gradient of a matrix product"""

import torch


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    grad_in = torch.matmul(dY, W.mT)
    grad_weight = torch.matmul(X.mT, dY) / X.shape[0]
    return grad_in, grad_weight
