# kind: one mistake
# what: W.reshape(M, K) and X.reshape(K, N) where the transpose is meant
# shows: as soon as W (or X) has more than one row and more than one column: right shapes, wrong numbers
"""ex08_matmul_gradient · the gradient of a matrix product"""


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    N, K = X.shape
    M = W.shape[1]
    W_t = W.reshape(M, K)
    X_t = X.reshape(K, N)
    return dY @ W_t, X_t @ dY
