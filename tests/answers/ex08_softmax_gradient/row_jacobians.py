# kind: point missed
# what: all the row Jacobians diag(P) - P Pt as one (N_q, N_k, N_k) tensor
# shows: numbers are right; N_k by N_k matrices are formed, one for each row
"""ex08_softmax_gradient · the gradient of a softmax"""

import torch


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    J = torch.diag_embed(P) - P[:, :, None] * P[:, None, :]        # (N_q, N_k, N_k)
    return (J @ dP[:, :, None])[:, :, 0]
