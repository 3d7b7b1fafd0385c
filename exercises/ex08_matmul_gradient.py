"""ex08_matmul_gradient · the gradient of a matrix product

Chapter 08 · difficulty 2 of 5 · 10 minutes

Y = X W. You are given dY, the gradient of the loss with respect to Y. Compute the gradients with respect to X and W.

    X (N, K)   W (K, M)   dY (N, M)   ->   dX (N, K), dW (K, M)

Both are matrix products; loops are allowed. Do not build a Jacobian, which has N·M by N·K numbers, nearly all 0.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, a Jacobian, autograd and its kernels, the finished function from flashlab or
solutions/.

Hint: only one product of dY and W has the shape (N, K). Why does its sum run over M?
"""

import torch


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    # your turn: two matrix products
    raise NotImplementedError("ex08_matmul_gradient: two matrix products")
