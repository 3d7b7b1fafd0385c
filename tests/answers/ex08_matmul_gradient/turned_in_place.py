# kind: one mistake
# what: X.t_() turns the caller's X round for good
# shows: both results are right; X has shape (K, N) afterwards
"""ex08_matmul_gradient · the gradient of a matrix product"""


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    dX = dY @ W.t()
    dW = X.t_() @ dY
    return dX, dW
