# kind: right
# what: dX and dW as sums of outer products, one for each output column and one for each row, in buffers of its own
# shows: loops are allowed, and nothing larger than dX, dW or one outer product is made

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
    N, K = X.shape
    M = W.shape[1]

    # x[n, k] goes into every y[n, m], m = 0 ... M-1, with weight w[k, m]: so everything that came back for row n is
    # collected over m
    dX = torch.zeros(N, K)
    for m in range(M):
        dX += torch.outer(dY[:, m], W[:, m])

    # w[k, m] is used by every row n, with weight x[n, k]
    dW = torch.zeros(K, M)
    for n in range(N):
        dW += torch.outer(X[n], dY[n])

    return dX, dW
