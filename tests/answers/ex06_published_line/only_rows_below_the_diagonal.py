# kind: right
# what: each key block touches only the queries from its first key on, in place on row slices; whole blocks above the diagonal never arise
"""ex06_published_line · find the bugs in the published lines"""

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """(O, L)."""
    N = Q.shape[0]
    out = Q.new_zeros(N, V.shape[1])
    total = Q.new_zeros(N, 1)
    peak = Q.new_full((N, 1), -inf)
    for lo in range(0, N, B_c):
        hi = min(lo + B_c, N)
        o, l, m = out[lo:], total[lo:], peak[lo:]              # views: the queries before lo see none of these keys
        s = (Q[lo:] @ K[lo:hi].mT) * scale
        s.masked_fill_(s.new_ones(s.shape, dtype=torch.bool).triu(1), -inf)
        m_new = torch.maximum(m, s.amax(1, keepdim=True))
        alpha, p = torch.exp(m - m_new), torch.exp(s - m_new)
        l.mul_(alpha).add_(p.sum(1, keepdim=True))
        o.mul_(alpha).add_(p @ V[lo:hi])
        m.copy_(m_new)
    return out / total, (peak + total.log()).flatten()
