# kind: two mistakes
# what: line 6 "repaired" as l = l + rowsum(P) without the factor; line 11 loses its m, so that L = log l
# shows: two or more key blocks with a rising maximum: O wrong; L wrong wherever the maximum is not 0, already with N = 1
"""ex06_published_line · find the bugs in the published lines"""

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """(O, L)."""
    N = Q.shape[0]
    O = torch.zeros(N, V.shape[-1], dtype=Q.dtype)
    l = torch.zeros(N, dtype=Q.dtype)
    m = torch.full((N,), -inf, dtype=Q.dtype)
    rows = torch.arange(N)
    for start in range(0, N, B_c):
        stop = min(start + B_c, N)
        S = Q @ K[start:stop].T * scale
        S = S.masked_fill(rows[start:stop] > rows[:, None], -inf)
        m_new = torch.maximum(m, S.amax(-1))
        P = torch.exp(S - m_new[:, None])
        l = l + P.sum(-1)
        O = torch.exp(m - m_new)[:, None] * O + P @ V[start:stop]
        m = m_new
    O = O / l[:, None]
    return O, torch.log(l)
