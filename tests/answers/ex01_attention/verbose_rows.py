# kind: right
# what: verbose beginner: one query after the other, python loop, early continue for empty rows
"""ex01_attention: my answer."""

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    number_of_queries = Q.shape[0]
    number_of_keys = K.shape[0]
    my_scale = scale
    if my_scale is None:
        my_scale = 1.0 / (Q.shape[1] ** 0.5)
    output = torch.zeros(number_of_queries, V.shape[1], dtype=Q.dtype)
    for i in range(number_of_queries):
        visible = number_of_keys
        if causal:
            visible = i + number_of_keys - number_of_queries + 1
        if visible <= 0:
            continue
        scores = K[:visible] @ Q[i] * my_scale
        weights = torch.exp(scores - scores.max())
        output[i] = (weights[:, None] * V[:visible]).sum(0) / weights.sum()
    return output
