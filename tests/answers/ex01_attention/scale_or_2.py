# kind: one mistake
# what: `scale or 1/√d`: a scale of 0 counts as no scale
# shows: scale=0.0 only: weights should be uniform over the visible keys
"""ex01_attention · my answer."""

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    scale = scale or Q.shape[-1] ** -0.5
    S = Q @ K.T * scale
    if causal:
        hide = torch.ones(len(Q), len(K), dtype=torch.bool, device=Q.device).triu(len(K) - len(Q) + 1)
        S = S.masked_fill(hide, -inf)
        P = S.softmax(-1).masked_fill(hide, 0)
    else:
        P = S.softmax(-1)
    return P @ V
