# kind: one mistake
# what: the mask comes before the scale: -inf times a negative scale is +inf, times 0 is NaN
# shows: causal with scale <= 0: NaN in rows that hide a key
"""ex01_attention · my answer."""

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    if scale is None:
        scale = 1.0 / (Q.size(-1) ** 0.5)
    S = Q @ K.transpose(0, 1)
    if causal:
        future = torch.ones_like(S, dtype=torch.bool).triu(1 + K.size(0) - Q.size(0))
        S[future] = -inf
    P = torch.softmax(S * scale, -1)
    if causal and Q.size(0) > K.size(0):
        P[: Q.size(0) - K.size(0)] = 0
    return P @ V
