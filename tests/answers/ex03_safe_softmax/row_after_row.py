# kind: right
# what: a loop over the rows into a matrix of zeros; rows without a key are passed over
"""ex03_safe_softmax · my answer."""

import torch

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    P = torch.zeros_like(S)
    for p, s in zip(P, S):
        m = max(s.tolist())
        if m == -inf:
            continue
        torch.exp(s - m, out=p)
        p /= p.sum()
    return P
