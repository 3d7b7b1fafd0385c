# kind: right
# what: C style: loops and own buffers, the products written as sums of outer products, one column of dY and one row of X at a time
# shows: within the contract: no Jacobian, no autograd; the same sums over M and over N in another order
"""ex08_matmul_gradient · the gradient of a matrix product

Chapter 08 · difficulty 2 of 5 · 15 minutes

Y = X W. The loss depends on Y, and dY, the gradient of the loss with respect to Y, has arrived from behind. Send it on to X
and to W.

    X (N, K)   W (K, M)   dY (N, M)   ->   dX (N, K), dW (K, M)

Both are matrix products. No Jacobian, N·M by N·K numbers of which nearly all are 0, is ever made.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, a Jacobian, autograd, the finished function from flashlab or solutions/.

Hint: the shapes leave one way to put dY together with W that gives (N, K). Why does the sum run over M?
"""

import torch


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    N, K = X.shape
    M = W.shape[1]
    dX = torch.zeros((N, K))
    dW = torch.zeros((K, M))
    for m in range(M):
        dX += dY[:, m].view(N, 1) * W[:, m].view(1, K)
    for n in range(N):
        dW += X[n].view(K, 1) * dY[n].view(1, M)
    return dX, dW
