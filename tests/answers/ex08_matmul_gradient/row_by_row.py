# kind: right
# what: a loop over the rows: dX row by row, dW as a sum of outer products
"""ex08_matmul_gradient · the gradient of a matrix product"""

import torch


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    dX = torch.empty_like(X)
    dW = torch.zeros_like(W)
    for n in range(X.shape[0]):
        dX[n] = W @ dY[n]
        dW += torch.outer(X[n], dY[n])
    return dX, dW
