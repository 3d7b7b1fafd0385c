# kind: right
# what: one sample (row) after the other: dX's row is a matrix-vector product with W, dW collects an outer product per row
# shows: loops are allowed; no row of X touches another row of Y, so no Jacobian of N·M by N·K is made
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
    dX = torch.empty_like(X)
    dW = torch.zeros_like(W)
    for n, (x, dy) in enumerate(zip(X, dY)):
        dX[n] = torch.mv(W, dy)         # (K, M) (M,): the sum runs over the outputs that x feeds
        dW.addr_(x, dy)                 # (K,) (M,) -> (K, M)
    return dX, dW
