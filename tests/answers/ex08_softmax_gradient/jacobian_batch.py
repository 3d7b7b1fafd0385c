# kind: point missed
# what: makes diag(P) - P Pᵀ for every row (N_q, N_k, N_k)
# shows: numbers right; the N_k x N_k matrix
"""ex08_softmax_gradient: my answer."""

import torch


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    J = torch.diag_embed(P) - P[:, :, None] * P[:, None, :]
    return torch.einsum("nij,ni->nj", J, dP)
