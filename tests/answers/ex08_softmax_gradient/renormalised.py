# kind: one mistake
# what: P is divided by its row sum once more, for safety
# shows: a row that is hidden throughout: 0/0, NaN instead of 0
"""ex08_softmax_gradient · the gradient of a softmax"""


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    P = P / P.sum(dim=-1, keepdim=True)        # rounding: make sure that rows sum to 1
    inner = (P * dP).sum(dim=-1, keepdim=True)
    return P * (dP - inner)
