# kind: one mistake
# what: dW is divided by the batch N
# shows: N > 1
"""ex08_matmul_gradient: my answer."""

import torch


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    return dY @ W.T, X.T @ dY / len(X)
