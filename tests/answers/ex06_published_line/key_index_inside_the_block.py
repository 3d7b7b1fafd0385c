# kind: one mistake
# what: the mask compares queries with the key's index inside its block, not with j * B_c + index
# shows: two or more key blocks: early queries see keys of later blocks (every query is right for the first block)
"""ex06_published_line · find the bugs in the published lines"""

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """(O, L)."""
    N, d_v = V.shape
    O = torch.zeros((N, d_v), dtype=V.dtype)
    l = torch.zeros((N, 1), dtype=V.dtype)
    m = torch.full((N, 1), -inf, dtype=V.dtype)
    for K_j, V_j in zip(K.split(B_c), V.split(B_c)):
        S = Q @ K_j.T * scale
        hidden = torch.arange(len(K_j)) > torch.arange(N)[:, None]
        S = torch.where(hidden, -inf, S)
        m_new = torch.maximum(m, S.max(1, keepdim=True)[0])
        P = torch.exp(S - m_new)
        alpha = torch.exp(m - m_new)
        l = alpha * l + P.sum(1, keepdim=True)
        O = alpha * O + P @ V_j
        m = m_new
    return O / l, (m + torch.log(l)).squeeze(1)
