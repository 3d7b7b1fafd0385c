"""ex08_softmax_gradient · the gradient of a softmax

Chapter 08 · difficulty 3 of 5 · 20 minutes

P = softmax(S), row by row. dP, the gradient of P, has arrived from behind, and P is at hand. Find dS, the gradient of
S.

    P (N_q, N_k)   dP (N_q, N_k)   ->   dS (N_q, N_k)

    one row:   dS_j = Σ_k dP_k · ∂P_k/∂S_j        ∂P_k/∂S_j = P_k · (δ_jk − P_j)

δ_jk is 1 where j = k, else 0. So the Jacobian of a row is diag(P) − P Pᵀ. Multiply it by dP on paper first: what is
left needs no N_k by N_k matrix. A hidden key has P = 0, and so dS = 0; a row may be hidden throughout. Tensors are
float32, and no size is 0.

Not allowed: changing the inputs, a loop over rows, an N_k by N_k matrix, autograd and its kernels, the finished
function from flashlab or solutions/.

Hint: put the second formula into the first and split the sum at the minus sign. Which part is the same for all j of a
row?
"""

import torch


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    # your turn: dS, without a Jacobian
    raise NotImplementedError("ex08_softmax_gradient: dS, without a Jacobian")
