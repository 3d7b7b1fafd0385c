# kind: one mistake
# what: the derivatives come in numerator layout, dX as (K, N) and dW as (M, K); a gradient has the shape of its tensor
# shows: any sizes but N = K = M = 1: the shapes are transposed, or where they are square the entries
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
    # dl = tr(dYᵀ dY(X, W)) = tr(dYᵀ (δX) W) + tr(dYᵀ X δW) = tr(W dYᵀ δX) + tr(dYᵀ X δW).
    # The derivative of tr(A X) with respect to X is A.
    G = dY.transpose(0, 1)
    return torch.mm(W, G), torch.mm(G, X)
