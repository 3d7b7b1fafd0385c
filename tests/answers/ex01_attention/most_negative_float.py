# kind: one mistake
# what: hidden scores are set to the dtype's smallest number in place of -inf, empty rows get no care
# shows: causal with N_q > N_k: the first queries get the mean of V and not zeros
"""ex01_attention · my answer."""

import torch


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    if scale is None:
        scale = Q.shape[-1] ** -0.5
    S = scale * (Q @ K.T)
    if causal:
        i = torch.arange(len(Q), device=Q.device)[:, None]
        j = torch.arange(len(K), device=Q.device)[None]
        S = S.masked_fill(j > i + len(K) - len(Q), torch.finfo(S.dtype).min)
    return torch.softmax(S, dim=-1) @ V
