# kind: one mistake
# what: dP is centred in place
# shows: dS is right, dP is another tensor afterwards
"""ex08_softmax_gradient · the gradient of a softmax"""


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    dP -= (P * dP).sum(1, keepdim=True)
    return P * dP
