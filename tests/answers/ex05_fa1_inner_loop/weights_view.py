# kind: right
# what: functional: weights of old and new part from a log-space l (logaddexp), nan_to_num
"""ex05_fa1_inner_loop: my answer."""

import torch

inf = float("inf")


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    bias = 0 if hidden is None else torch.zeros(hidden.shape, dtype=Q_i.dtype).masked_fill(hidden, -inf)
    s = torch.einsum("rd,cd->rc", Q_i, K_j) * scale + bias
    m = torch.stack([m_i, s.amax(1)]).amax(0)
    L_old = m_i + l_i.log()
    L = torch.logaddexp(L_old, s.logsumexp(1))
    p = (s - L[:, None]).exp().nan_to_num(0.0)
    old = (L_old - L).exp().nan_to_num(0.0)
    if keep is not None:
        p = torch.where(keep, p / (1 - dropout_p), torch.zeros_like(p))
    return old[:, None] * O_i + p @ V_j, (L - m).exp().nan_to_num(0.0), m
