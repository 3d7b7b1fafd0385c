# kind: one mistake
# what: dW is divided by the number of rows N, as if the loss were a mean over a batch; what the loss is lies in dY already
# shows: any N > 1: dW is too small by N; dX is right
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
    N = X.shape[0]
    dX = torch.matmul(dY, W.t())
    dW = torch.matmul(X.t(), dY) / N      # averaged over the batch
    return dX, dW
