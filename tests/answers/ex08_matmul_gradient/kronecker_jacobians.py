# kind: point missed
# what: the numbers are right, but both Jacobians are formed, (N M, N K) and (N M, K M) numbers, and multiplied by dY
# shows: any inputs: the exercise says no Jacobian is ever made
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
    (N, K), M = X.shape, W.shape[1]
    dY_vec = dY.reshape(N * M)
    I_N = torch.eye(N, dtype=W.dtype, device=W.device)
    I_M = torch.eye(M, dtype=X.dtype, device=X.device)
    # vec(Y) = (I_N ⊗ Wᵀ) vec(X) = (X ⊗ I_M) vec(W), row after row
    J_X = (I_N[:, None, :, None] * W.T[None, :, None, :]).reshape(N * M, N * K)
    J_W = (X[:, None, :, None] * I_M[None, :, None, :]).reshape(N * M, K * M)
    return (J_X.T @ dY_vec).reshape(N, K), (J_W.T @ dY_vec).reshape(K, M)
