"""ex08_softmax_gradient · the gradient of a softmax

Chapter 08 · difficulty 3 of 5 · 20 minutes

P = softmax(S), row by row. You are given P and dP, the gradient of the loss with respect to P. Compute dS, the gradient
with respect to S.

    P (N_q, N_k)   dP (N_q, N_k)   ->   dS (N_q, N_k)

    one row:   dS_j = Σ_k dP_k · ∂P_k/∂S_j        ∂P_k/∂S_j = P_k · (δ_jk − P_j)

δ_jk is 1 where j = k, else 0. So the Jacobian of a row is diag(P) − P Pᵀ. Multiply it by dP on paper first: the result
needs no N_k by N_k matrix. A hidden key has P = 0 and dS = 0; all keys of a row may be hidden. Tensors are float32, and
no size is 0.

Not allowed: changing the inputs, a loop over rows, an N_k by N_k matrix, autograd and its kernels, the finished
function from flashlab or solutions/.

Hint: put the second formula into the first and split the sum at the minus sign. Which part is the same for all j?
"""

import torch


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    # your turn: dS, without a Jacobian
    raise NotImplementedError("ex08_softmax_gradient: dS, without a Jacobian")
