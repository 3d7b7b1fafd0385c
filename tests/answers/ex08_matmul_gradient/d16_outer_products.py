# kind: right
# what: both products as sums of outer products: dX over the M columns of Y, dW over the N rows, into own buffers
# shows: "loops are allowed"; no Jacobian; sizes of 1 included
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
    N, M = dY.shape
    dX = torch.zeros_like(X)
    dW = torch.zeros_like(W)
    # column m of Y is X @ W[:, m]: whatever arrives there goes to X along W[:, m]
    for m in range(M):
        dX += torch.outer(dY[:, m], W[:, m])
    # row n of Y is X[n] @ W: W gets a part from every row
    for n in range(N):
        dW += torch.outer(X[n], dY[n])
    return dX, dW
