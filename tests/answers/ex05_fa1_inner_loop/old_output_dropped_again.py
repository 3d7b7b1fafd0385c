# kind: one mistake
# what: 1 / (1 - dropout_p) is applied to the whole new O_i, so the old part is divided by it once more
# shows: dropout_p > 0 from the second key block on; the first one is right
"""ex05_fa1_inner_loop · my answer."""

import torch

inf = float("inf")


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""

    S = Q_i @ K_j.T * scale
    if hidden is not None:
        S = S.masked_fill(hidden, -inf)
    m_new = torch.maximum(m_i, S.amax(-1))
    m_safe = m_new.masked_fill(m_new == -inf, 0)
    P = torch.exp(S - m_safe[:, None])
    alpha = torch.exp(m_i - m_safe)
    l_new = alpha * l_i + P.sum(-1)
    if keep is not None:
        P = P.masked_fill(~keep, 0)
    l_safe = l_new.masked_fill(l_new == 0, 1)
    O_new = ((alpha * l_i)[:, None] * O_i + P @ V_j) / l_safe[:, None]
    return O_new / (1 - dropout_p), l_new, m_new
