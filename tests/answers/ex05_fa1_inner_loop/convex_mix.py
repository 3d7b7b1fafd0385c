# kind: right
# what: O is a mixture: old share times old O plus the new weights, which are divided first; sums clamped at 1, which only empty rows are below
"""ex05_fa1_inner_loop · my answer."""

import torch

inf = float("inf")


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""

    S = torch.einsum("rd,cd->rc", Q_i, K_j).mul_(scale)
    if hidden is not None:
        S[hidden] = -inf
    m = torch.maximum(m_i, S.max(dim=1)[0])
    ref = torch.where(m > -inf, m, 0)
    P = (S - ref[:, None]).exp_()
    old = l_i * (m_i - ref).exp()
    l = old + P.sum(dim=1)
    share = l.clamp(min=1)                                 # a visible maximum has weight 1
    P = P / share[:, None]
    if keep is not None:
        P = torch.where(keep, P / (1 - dropout_p), 0)
    return (old / share)[:, None] * O_i + P @ V_j, l, m
