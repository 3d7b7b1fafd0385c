# kind: point missed
# what: both Jacobians are made as matrices, and dY is multiplied by them
# shows: numbers are right; N·M by N·K and N·M by K·M matrices are formed
"""ex08_matmul_gradient · the gradient of a matrix product"""

import torch


def matmul_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    (N, K), M = X.shape, W.shape[1]
    one_N = torch.eye(N, dtype=X.dtype, device=X.device)
    one_M = torch.eye(M, dtype=X.dtype, device=X.device)
    J_X = torch.einsum("an,km->amnk", one_N, W).reshape(N * M, N * K)      # dY_am / dX_nk
    J_W = torch.einsum("ak,bm->abkm", X, one_M).reshape(N * M, K * M)      # dY_ab / dW_km
    g = dY.reshape(-1)
    return (g @ J_X).reshape(N, K), (g @ J_W).reshape(K, M)
