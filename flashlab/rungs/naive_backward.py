"""The gradients of attention as the chain rule says it: every intermediate is a matrix in HBM."""

import torch
from torch import inf

from flashlab.validate import check_bool, check_like, check_qkv, check_scale


def naive_backward(Q, K, V, dO, *, causal=False, scale=None):
    """From dO, the gradient of a loss with respect to O, back to Q, K and V, one PyTorch operation after the other.

    Traffic: reads 11·N_q·N_k + 3·(N_q + N_k)·d + (2·N_q + N_k)·d_v + N_q,
             writes 7·N_q·N_k + 2·(N_q + N_k)·d + N_k·d_v + N_q   [elements, no mask]
    Source:  Dao et al. 2022, arXiv:2205.14135, Algorithm 3, which reads P from HBM: here it is computed again
    """
    check_qkv(Q, K, V)
    check_bool(causal=causal)
    check_like(dO=(dO, (Q.shape[0], V.shape[1]), Q.dtype))
    scale = check_scale(scale, Q.shape[-1])
    N_q, N_k = Q.shape[0], K.shape[0]

    S = Q @ K.T                                            # (N_q, N_k)  the forward again, to have P
    S = S * scale                                          # (N_q, N_k)
    if causal:
        hidden = torch.ones(N_q, N_k, dtype=torch.bool, device=Q.device).triu(N_k - N_q + 1)    # True: key too late
        S = S.masked_fill(hidden, -inf)
    P = torch.softmax(S, dim=-1)                           # (N_q, N_k)
    if causal and N_q > N_k:
        P[: N_q - N_k] = 0                                 # these queries see no key: their softmax was 0/0

    dP = dO @ V.T                                          # (N_q, N_k)  O = P V
    dV = P.T @ dO                                          # (N_k, d_v)

    D = (P * dP).sum(-1, keepdim=True)                     # (N_q, 1)    how far the whole row moved
    dS = P * (dP - D)                                      # (N_q, N_k)  a row of P sums to 1, so a row of dS sums to 0
    dQ = scale * (dS @ K)                                  # (N_q, d)    S = scale · Q Kᵀ
    dK = scale * (dS.T @ Q)                                # (N_k, d)
    return dQ, dK, dV
