# kind: point missed
# what: all N x N scores are formed and masked first; the loop over key blocks only cuts columns out of them
# shows: numbers right; an (N, N) tensor exists even with B_c = 1
"""ex06_published_line · find the bugs in the published lines"""

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """(O, L)."""
    N = Q.shape[0]
    scores = Q @ K.T * scale
    scores = scores.masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), -inf)
    O = torch.zeros(N, V.shape[1], dtype=Q.dtype)
    l = torch.zeros(N, dtype=Q.dtype)
    m = torch.full((N,), -inf, dtype=Q.dtype)
    for start in range(0, N, B_c):
        S = scores[:, start:start + B_c]
        m_new = torch.maximum(m, S.amax(1))
        P = torch.exp(S - m_new[:, None])
        alpha = torch.exp(m - m_new)
        l = alpha * l + P.sum(1)
        O = alpha[:, None] * O + P @ V[start:start + B_c]
        m = m_new
    return O / l[:, None], m + torch.log(l)
