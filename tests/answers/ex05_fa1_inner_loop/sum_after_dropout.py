# kind: one mistake
# what: l_i takes the sum of the weights after dropout
# shows: with a keep mask: l and O; without dropout everything is right
"""ex05_fa1_inner_loop · my answer."""

import torch

inf = float("inf")


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""

    S = (Q_i * scale) @ K_j.T
    if hidden is not None:
        S.masked_fill_(hidden, -inf)
    m_new = torch.maximum(m_i, S.amax(-1))
    base = torch.nan_to_num(m_new, neginf=0.0)
    P = torch.exp(S - base[:, None])
    if keep is not None:
        P = P * keep / (1 - dropout_p)
    carried = torch.exp(m_i - base) * l_i
    l_new = carried + P.sum(-1)
    O_new = carried[:, None] * O_i + P @ V_j
    O_new = O_new / torch.where(l_new > 0, l_new, 1.0)[:, None]
    return O_new, l_new, m_new
