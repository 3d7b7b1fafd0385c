# kind: one mistake
# what: the guard against -inf looks at m_i and not at m_new: the first visible block is not shifted
# shows: a row's first visible block: O is right, l is in units of exp(0) and not exp(m), so the next step goes wrong; scores above 88 overflow
"""ex05_fa1_inner_loop · my answer."""

import torch

inf = float("inf")


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""

    S = Q_i @ K_j.T * scale
    if hidden is not None:
        S = S.masked_fill(hidden, -inf)
    m_new = torch.maximum(m_i, S.amax(-1))
    shift = torch.where(m_i == -inf, torch.zeros_like(m_new), m_new)
    P = torch.exp(S - shift[:, None])
    rest = torch.exp(m_i - shift) * l_i
    l_new = rest + P.sum(-1)
    if keep is not None:
        P = torch.where(keep, P, 0) / (1 - dropout_p)
    total = torch.where(l_new == 0, torch.ones_like(l_new), l_new)
    return (rest[:, None] * O_i + P @ V_j) / total[:, None], l_new, m_new
