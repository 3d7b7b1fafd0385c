# kind: one mistake
# what: sum(-1) without keepdim: with a square P the row sums are broadcast along the wrong axis
# shows: N_q = N_k > 1: wrong numbers in silence; otherwise it does not broadcast at all (RuntimeError) unless N_q = 1
"""ex08_softmax_gradient · the gradient of a softmax"""


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    D = (P * dP).sum(-1)
    return P * (dP - D)
