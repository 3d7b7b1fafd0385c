# kind: one mistake
# what: lines 3 and 4 change places: the row's maximum is taken before the mask, over keys that the query does not see
# shows: a hidden key whose score is more than about 100 (float32) above the visible ones: all weights underflow, O NaN, L -inf
"""ex06_published_line · find the bugs in the published lines"""

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """(O, L)."""
    N = Q.shape[0]
    O = torch.zeros(N, V.shape[1], dtype=Q.dtype)
    l = torch.zeros(N, dtype=Q.dtype)
    m = torch.full((N,), -inf, dtype=Q.dtype)
    for j in range((N + B_c - 1) // B_c):
        cols = torch.arange(j * B_c, min((j + 1) * B_c, N))
        S = scale * Q @ K[cols].T
        m_new = torch.maximum(m, S.amax(1))
        S[cols[None, :] > torch.arange(N)[:, None]] = -inf
        P = torch.exp(S - m_new[:, None])
        alpha = torch.exp(m - m_new)
        l = alpha * l + P.sum(1)
        O = alpha[:, None] * O + P @ V[cols]
        m = m_new
    O = O / l[:, None]
    L = m + torch.log(l)
    return O, L
