# kind: right
# what: dX column after column of Y, dW row after row of X: sums of outer products in own buffers
# shows: within the contract: the stub forbids no loop, no Jacobian is made; the largest thing held is a gradient
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
    M = W.shape[1]

    dX = torch.zeros(N, K, dtype=X.dtype, device=X.device)
    for m in range(M):
        dX.add_(dY[:, m:m + 1] * W[:, m])        # (N, 1) * (K,)

    dW = torch.zeros(K, M, dtype=W.dtype, device=W.device)
    for n in range(N):
        dW.add_(X[n].view(K, 1) * dY[n].view(1, M))

    return dX, dW
