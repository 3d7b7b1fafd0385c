# kind: point missed
# what: calls torch.log_softmax and exponentiates
# shows: numbers right; library softmax
"""ex03_safe_softmax: my answer."""

import torch

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    return torch.log_softmax(S, -1).exp().nan_to_num(0.0)
