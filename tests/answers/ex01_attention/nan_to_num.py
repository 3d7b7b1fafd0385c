# kind: right
# what: short PyTorch, softmax then nan_to_num for the rows that see nothing
"""ex01_attention: my answer."""

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    N_q, d = Q.shape
    N_k = K.shape[0]
    if scale is None:
        scale = d ** -0.5
    S = Q @ K.T * scale
    if causal:
        S = S.masked_fill(torch.ones(N_q, N_k, dtype=torch.bool, device=Q.device).triu(N_k - N_q + 1), -inf)
    P = torch.softmax(S, dim=-1)
    P = torch.nan_to_num(P, nan=0.0)
    return P @ V
