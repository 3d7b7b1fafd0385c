"""Attention as the formula says it: every intermediate is a matrix in HBM."""

import torch
from torch import inf

from flashlab.validate import check_bool, check_qkv, check_scale


def naive_forward(Q, K, V, *, causal=False, scale=None, return_lse=False):
    """softmax(scale · Q Kᵀ) V, one PyTorch operation after the other. L is None unless `return_lse` asks for it.

    Traffic: reads (N_q + N_k)·d + 3·N_q·N_k + N_k·d_v, writes 3·N_q·N_k + N_q·d_v   [elements, no mask, without L]
    Source:  Vaswani et al. 2017, arXiv:1706.03762, equation 1
    """
    check_qkv(Q, K, V)
    check_bool(causal=causal, return_lse=return_lse)
    scale = check_scale(scale, Q.shape[-1])
    N_q, N_k = Q.shape[0], K.shape[0]

    S = Q @ K.T                                            # (N_q, N_k)
    S = S * scale                                          # (N_q, N_k)
    if causal:
        hidden = torch.ones(N_q, N_k, dtype=torch.bool, device=Q.device).triu(N_k - N_q + 1)    # True: key too late
        S = S.masked_fill(hidden, -inf)                    # exp(-inf) is exactly 0
    P = torch.softmax(S, dim=-1)                           # (N_q, N_k)
    O = P @ V                                              # (N_q, d_v)
    if causal and N_q > N_k:
        O[: N_q - N_k] = 0                                 # these queries see no key: their softmax was 0/0
    if not return_lse:
        return O, None
    L = torch.logsumexp(S, dim=-1)                         # (N_q,)
    return O, L.to(torch.float64 if Q.dtype == torch.float64 else torch.float32)
