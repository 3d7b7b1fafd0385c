# kind: right
# what: distributed: P*dP minus P times its row sum
"""ex08_softmax_gradient: my answer."""

import torch


def softmax_backward(P, dP):
    """dS, from P and dP, for all rows at once."""
    g = P.mul(dP)
    return g.sub(P.mul(g.sum(dim=-1)[:, None]))
