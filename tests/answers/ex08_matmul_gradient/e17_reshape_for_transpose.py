# kind: one mistake
# what: W is turned into (M, K) with reshape, which keeps the order of the elements; it should be the transpose
# shows: K > 1 and M > 1: dX is wrong, its shape is right; dW is right
"""ex08_matmul_gradient · the gradient of a matrix product

Chapter 08 · difficulty 2 of 5 · 15 minutes

Y = X W. The loss depends on Y, and dY, the gradient of the loss with respect to Y, has arrived from behind. Send it on to X
and to W.

    X (N, K)   W (K, M)   dY (N, M)   ->   dX (N, K), dW (K, M)

Both are matrix products; loops are allowed. No Jacobian, N·M by N·K numbers of which nearly all are 0, is ever made.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, a Jacobian, autograd, the finished function from flashlab or solutions/.

Hint: the shapes leave one way to put dY together with W that gives (N, K). Why does the sum run over M?
"""

import torch


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    K, M = W.shape
    dX = dY @ W.reshape(M, K)       # (N, M) (M, K)
    dW = X.T @ dY                   # (K, N) (N, M)
    return dX, dW
