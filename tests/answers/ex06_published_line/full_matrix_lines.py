# kind: point missed
# what: all N x N scores are made at once before the loop and sliced
# shows: numbers right
"""ex06_published_line: my answer."""

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """Causal attention and the natural-log logsumexp of each row: (O, L)."""
    N = Q.shape[0]
    O = torch.zeros(N, V.shape[1], dtype=Q.dtype)
    l = torch.zeros(N, dtype=Q.dtype)
    m = torch.full((N,), -inf, dtype=Q.dtype)
    n = torch.arange(N)
    ALL = Q @ K.T * scale
    for j in range(0, N, B_c):
        K_j, V_j = K[j:j + B_c], V[j:j + B_c]
        S = ALL[:, j:j + B_c]
        S = S.masked_fill(n[:, None] < n[None, j:j + B_c], -inf)
        m_new = torch.maximum(m, S.max(1).values)
        P = torch.exp(S - m_new[:, None])
        a = torch.exp(m - m_new)
        l = a * l + P.sum(1)
        O = a[:, None] * O + P @ V_j
        m = m_new
    return O / l[:, None], m + torch.log(l)
