# kind: point missed
# what: builds the Jacobian of Y with respect to X (and to W), N·M by N·K numbers, and multiplies it by dY; the numbers are right
# shows: the stub forbids a Jacobian: tensors of (N·M, N·K) and (N·M, K·M) elements are made in every call

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
    dy = dY.reshape(N * M)

    # y[n, m] by x[n', k]  =  w[k, m] if n = n' else 0
    J_X = torch.einsum("ab,km->ambk", torch.eye(N), W).reshape(N * M, N * K)
    # y[n, m] by w[k, m']  =  x[n, k] if m = m' else 0
    J_W = torch.einsum("nk,ab->nakb", X, torch.eye(M)).reshape(N * M, K * M)

    dX = (dy @ J_X).reshape(N, K)
    dW = (dy @ J_W).reshape(K, M)
    return dX, dW
