# kind: one mistake
# what: hidden scores are multiplied by a 0/1 tril mask, so they become score 0 instead of -inf
# shows: causal=True
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
        S = S * torch.ones(N_q, N_k, dtype=S.dtype).tril(N_k - N_q)
    P = torch.softmax(S, dim=-1)
    P = torch.nan_to_num(P, nan=0.0)
    return P @ V
