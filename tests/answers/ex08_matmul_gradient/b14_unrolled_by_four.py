# kind: one mistake
# what: the sum over the rows in dW goes in blocks of 4, N // 4 of them, and the last N % 4 rows are forgotten
# shows: N not a multiple of 4: dW lacks rows (for N < 4 it is 0)
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

UNROLL = 4


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    N = X.shape[0]

    dX = torch.empty_like(X)
    for n in range(N):
        dX[n] = W @ dY[n]

    # reduction over N, four rows a step
    dW = torch.zeros_like(W)
    for step in range(N // UNROLL):
        base = step * UNROLL
        for u in range(UNROLL):
            dW += X[base + u][:, None] * dY[base + u][None, :]
    return dX, dW
