# kind: one mistake
# what: dW = dY.T @ X has the transposed shape (M, K)
# shows: all (K == M: wrong numbers)
"""ex08_matmul_gradient: my answer."""

import torch


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    return dY @ W.T, dY.T @ X
