"""Attention as the model takes it, `attention(Q, K, V, causal=True) -> O`: naive, by PyTorch, by flash_attention."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from flashlab.operator.attention import flash_attention


def naive(Q, K, V, causal=True):
    """As the formula says it: S and P, N_q × N_k for each head, are stored, and kept for the backward pass."""
    K, V = (T.repeat_interleave(Q.shape[1] // T.shape[1], dim=1) for T in (K, V))
    S = Q @ K.mT * Q.shape[-1] ** -0.5
    if causal:
        N_q, N_k = S.shape[-2:]
        hidden = torch.ones(N_q, N_k, dtype=torch.bool, device=S.device).triu(N_k - N_q + 1)
        S = S.masked_fill(hidden, -torch.inf)
    return torch.softmax(S, dim=-1).to(V.dtype) @ V          # autocast makes a softmax float32, as it should be


def flash(Q, K, V, causal=True):
    """The course's operator."""
    return flash_attention(Q, K, V, causal=causal)


def sdpa(backend):
    """PyTorch's scaled_dot_product_attention by this backend: that one, or an error."""
    def attention(Q, K, V, causal=True):
        one_query = Q.shape[2] == 1                          # sees every key; SDPA's top-left mask would show it one
        if not one_query and Q.shape[2] != K.shape[2] and causal:
            raise ValueError("PyTorch's causal mask is top-left aligned: N_q must be N_k or 1, "
                             f"got {Q.shape[2]} and {K.shape[2]}")
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(Q, K, V, is_causal=causal and not one_query,
                                                enable_gqa=Q.shape[1] != K.shape[1])

    return attention


ATTENTIONS = {"naive": naive, "SDPA math": sdpa(SDPBackend.MATH), "flash_attention": flash,
              "SDPA flash": sdpa(SDPBackend.FLASH_ATTENTION), "SDPA cuDNN": sdpa(SDPBackend.CUDNN_ATTENTION)}
