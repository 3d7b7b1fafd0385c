# kind: one mistake
# what: dropout is put on P before the row sum, so l counts the dropped weights out
# shows: keep given
"""ex05_fa1_inner_loop: my answer."""

import torch

inf = float("inf")


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    S = Q_i @ K_j.T * scale
    if hidden is not None:
        S = S.masked_fill(hidden, -inf)
    m_new = torch.maximum(m_i, S.amax(-1))
    m_safe = m_new.masked_fill(m_new == -inf, 0)
    alpha = torch.exp(m_i - m_safe)
    P = torch.exp(S - m_safe[:, None])
    if keep is not None:
        P = P * keep / (1 - dropout_p)
    l_new = alpha * l_i + P.sum(-1)
    den = l_new.masked_fill(l_new == 0, 1)
    O_new = ((alpha * l_i)[:, None] * O_i + P @ V_j) / den[:, None]
    return O_new, l_new, m_new
