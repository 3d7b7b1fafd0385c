"""Attention as the formula says it: every intermediate is a matrix in HBM."""

import torch

from flashlab.validate import check_qkv, check_scale, check_window

inf = float("inf")


def naive_forward(Q, K, V, *, causal=False, window=None, scale=None):
    """softmax(scale · Q Kᵀ) V, one PyTorch operation after the other.

    Shapes:  Q (N_q, d), K (N_k, d), V (N_k, d_v) -> O (N_q, d_v), L (N_q,) natural-log logsumexp (float32, or float64)
    Causal:  bottom-right aligned: the last query sees every key; a query that sees none gets O = 0, L = -inf
    Window:  (left, right): query i sees keys i + N_k - N_q - left to i + N_k - N_q + right, -1 for no limit; causal is (-1, 0)
    Traffic: reads (N_q + N_k)·d + 4·N_q·N_k + N_k·d_v, writes 3·N_q·N_k + N_q·(d_v + 1)   [elements, no mask; cost.naive_forward]
    Raises:  TypeError or ValueError that names the argument
    Source:  Vaswani et al. 2017, arXiv:1706.03762, equation 1
    """
    check_qkv(Q, K, V)
    scale = check_scale(scale, Q.shape[-1])
    N_q, N_k = Q.shape[0], K.shape[0]
    causal, window = check_window(window, causal, N_q, N_k)
    left, right = window or (-1, 0 if causal else -1)      # -1: no limit

    S = Q @ K.T                                            # (N_q, N_k)
    S = S * scale                                          # (N_q, N_k)
    if right >= 0:
        hidden = torch.ones(N_q, N_k, dtype=torch.bool, device=Q.device).triu(N_k - N_q + right + 1)    # True: key too late
        S = S.masked_fill(hidden, -inf)                    # exp(-inf) is exactly 0
    if left >= 0:
        hidden = torch.ones(N_q, N_k, dtype=torch.bool, device=Q.device).tril(N_k - N_q - left - 1)     # True: key too early
        S = S.masked_fill(hidden, -inf)
    P = torch.softmax(S, dim=-1)                           # (N_q, N_k)
    O = P @ V                                              # (N_q, d_v)
    L = torch.logsumexp(S, dim=-1)                         # (N_q,)
    if right >= 0 and N_q > N_k + right:
        O[: N_q - N_k - right] = 0                                 # these queries see no key: their softmax was 0/0
    return O, L.to(torch.float64 if Q.dtype == torch.float64 else torch.float32)
