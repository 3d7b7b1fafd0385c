# kind: one mistake
# what: the shapes are made to fit with reshape, which keeps the elements in their order: W.reshape(M, K) should be W.T (dW is right)
# shows: any W with K > 1 and M > 1: dX is wrong
"""ex08_matmul_gradient · the gradient of a matrix product

Chapter 08 · difficulty 2 of 5 · 15 minutes

Y = X W. The loss depends on Y, and dY, the gradient of the loss with respect to Y, has arrived from behind. Send it on to X
and to W.

    X (N, K)   W (K, M)   dY (N, M)   ->   dX (N, K), dW (K, M)

Both are matrix products. No Jacobian, N·M by N·K numbers of which nearly all are 0, is ever made.

Not allowed: changing the inputs, a Jacobian, autograd, the finished function from flashlab or solutions/.

Hint: the shapes leave one way to put dY together with W that gives (N, K). Why does the sum run over M?
"""

import torch


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    N, K = X.shape
    _, M = W.shape
    W_T = W.reshape(M, K)                        # dY is (N, M): what goes on its right has to be (M, K)
    dX = dY @ W_T
    dW = X.T @ dY
    return dX, dW
