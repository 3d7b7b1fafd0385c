# kind: point missed
# what: torch.autograd.grad on a detached copy
# shows: numbers right; autograd
"""ex08_matmul_gradient: my answer."""

import torch


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    with torch.enable_grad():
        x, w = X.detach().requires_grad_(), W.detach().requires_grad_()
        return torch.autograd.grad(x @ w, (x, w), dY)
