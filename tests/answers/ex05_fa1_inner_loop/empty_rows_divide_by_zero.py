# kind: two mistakes
# what: 1 - dropout_p multiplies in place of dividing; and rows without a visible key are not guarded (NaN)
# shows: dropout_p > 0: new weights too small; rows that see nothing: NaN
"""ex05_fa1_inner_loop · my answer."""

import torch

inf = float("inf")


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""

    S = Q_i @ K_j.T * scale
    if hidden is not None:
        S = S.masked_fill(hidden, -inf)
    m_new = torch.maximum(m_i, S.amax(-1))
    alpha, P = torch.exp(m_i - m_new), torch.exp(S - m_new[:, None])
    l_new = alpha * l_i + P.sum(-1)
    if keep is not None:
        P = P * keep * (1 - dropout_p)
    O_new = ((alpha * l_i)[:, None] * O_i + P @ V_j) / l_new[:, None]
    return O_new, l_new, m_new
