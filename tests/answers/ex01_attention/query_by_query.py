# kind: right
# what: beginner: a loop over the queries, each with the slice of keys it sees
"""ex01_attention · my answer."""

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    if scale is None:
        scale = 1 / Q.shape[1] ** 0.5
    N_q, N_k = len(Q), len(K)
    O = torch.zeros(N_q, V.shape[1], dtype=V.dtype, device=V.device)
    for i in range(N_q):
        seen = N_k
        if causal:
            seen = min(N_k, i + N_k - N_q + 1)
        if seen <= 0:
            continue                                       # sees nothing: zeros
        s = (K[:seen] * Q[i]).sum(1) * scale
        w = torch.exp(s - s.max())
        w = w / w.sum()
        O[i] = (w[:, None] * V[:seen]).sum(0)
    return O
