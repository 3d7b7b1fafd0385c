# kind: point missed
# what: the numbers are right, but they come from the two Jacobians, kron(I, Wᵀ) of N·M by N·K numbers and kron(X, I)
# shows: "No Jacobian ... is ever made", "Not allowed: a Jacobian": memory of N·M·N·K numbers
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
    of_X = torch.einsum("an,km->amnk", torch.eye(N), W).reshape(N * M, N * K)     # vec(Y) = of_X vec(X)
    of_W = torch.einsum("nk,am->nakm", X, torch.eye(M)).reshape(N * M, K * M)     # vec(Y) = of_W vec(W)
    arriving = dY.reshape(N * M)
    dX = (arriving @ of_X).reshape(N, K)
    dW = (arriving @ of_W).reshape(K, M)
    return dX, dW
