"""ex08_softmax_gradient · the gradient of a softmax

Chapter 08 · difficulty 3 of 5 · 20 minutes

P = softmax(S), row by row. dP has arrived from behind, and P is at hand. Find dS.

    P (N_q, N_k)   dP (N_q, N_k)   ->   dS (N_q, N_k)

    one row:   dS_j = Σ_k dP_k · ∂P_k/∂S_j        ∂P_k/∂S_j = P_k · (δ_jk − P_j)

The Jacobian of a row is diag(P) − P Pᵀ. Multiply it by dP on paper first: what is left needs no N_k by N_k matrix.

Hint: Σ_k dP_k · P_k is one number for the row. Call it D.
"""


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    # >>> your turn: D, one number for each row, and dS
    D = (P * dP).sum(-1, keepdim=True)                              # (N_q, 1)
    return P * (dP - D)                                             # (N_q, N_k)
    # <<<
