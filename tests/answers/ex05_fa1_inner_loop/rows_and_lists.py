# kind: right
# what: beginner: a Python loop over the queries, lists of visible keys, stack at the end
"""ex05_fa1_inner_loop · my answer."""

import torch

inf = float("inf")


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""

    O_new, l_new, m_new = O_i.clone(), l_i.clone(), m_i.clone()
    for r in range(Q_i.shape[0]):
        see = [c for c in range(K_j.shape[0]) if hidden is None or not hidden[r, c]]
        if len(see) == 0:
            continue                                       # nothing new for this query
        s = K_j[see] @ Q_i[r] * scale
        m = torch.maximum(m_i[r], s.max())
        w = torch.exp(s - m)
        before = l_i[r] * torch.exp(m_i[r] - m)
        l_new[r] = before + w.sum()
        if keep is not None:
            w = w * keep[r, see] / (1 - dropout_p)
        O_new[r] = (before * O_i[r] + w @ V_j[see]) / l_new[r]
        m_new[r] = m
    return O_new, l_new, m_new
