# kind: one mistake
# what: hidden scores are -1e9 in place of -inf
# shows: a row that has seen no key after this block: O is a mean of V, l counts keys, m = -1e9; rows with a visible key are right
"""ex05_fa1_inner_loop · my answer."""

import torch

inf = float("inf")


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""

    S = Q_i @ K_j.T * scale
    if hidden is not None:
        S = torch.where(hidden, -1e9, S)
    m_new = torch.maximum(m_i, S.amax(1))
    P = torch.exp(S - m_new[:, None])
    alpha = torch.exp(m_i - m_new)
    l_new = alpha * l_i + P.sum(1)
    if keep is not None:
        P = P * keep / (1 - dropout_p)
    O_new = (l_i * alpha / l_new)[:, None] * O_i + P @ V_j / l_new[:, None]
    return O_new, l_new, m_new
