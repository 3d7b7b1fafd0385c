# kind: one mistake
# what: of the two divisions by l the last one (line 10) was struck out and line 8 in the loop was kept
# shows: two or more key blocks: O has been divided once per block; with one block it is right
"""ex06_published_line · find the bugs in the published lines"""

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """(O, L)."""
    N = len(Q)
    O = torch.zeros(N, V.shape[1], dtype=Q.dtype)
    l = torch.zeros(N, dtype=Q.dtype)
    m = torch.full((N,), -inf, dtype=Q.dtype)
    query = torch.arange(N)[:, None]
    for start in range(0, N, B_c):
        K_j, V_j = K[start:start + B_c], V[start:start + B_c]
        S = Q @ K_j.T * scale
        key = torch.arange(start, start + len(K_j))[None, :]
        S = S.masked_fill(key > query, -inf)
        m_new = torch.maximum(m, S.amax(dim=1))
        P = torch.exp(S - m_new[:, None])
        l = l * torch.exp(m - m_new) + P.sum(dim=1)
        O = torch.exp(m - m_new)[:, None] * O + P @ V_j
        O = O / l[:, None]
        m = m_new
    L = m + torch.log(l)
    return O, L
