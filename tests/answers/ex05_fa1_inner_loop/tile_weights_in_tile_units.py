# kind: one mistake
# what: as in the paper P~ is in units of the tile's own maximum m~; exp(m~ - m_new) is there for l but forgotten in front of P~ V_j
# shows: any row where the tile's maximum is below the maximum so far

"""ex05_fa1_inner_loop · the inner step of FlashAttention-1

Chapter 05 · difficulty 4 of 5 · 35 minutes

FA1 keeps a key block on chip and lets the query blocks pass. Each step takes O_i, l_i, m_i from HBM, adds one key block and
puts them back. O_i is normalised at all times: it is the attention over the keys seen so far.

    Q_i (B_r, d)   K_j (B_c, d)   V_j (B_c, d_v)   O_i (B_r, d_v)   l_i, m_i (B_r,)   ->   O_i, l_i, m_i, new ones

m_i is the largest score of each row so far, l_i the sum of exp(score − m_i); the softmax is that of Q_i Kᵀ · scale over the
keys that are not hidden. A row may have no visible key yet (m_i = -inf, l_i = 0): its O_i stays 0.
hidden is True where a query must not see a key; None means that nothing is hidden.
Dropout acts on the finished weights: those where keep is False become 0, the others are divided by 1 − dropout_p. l_i is the
sum without dropout. keep is None where nothing is dropped, and dropout_p is then 0.
Scores lie between −1000 and 1000; scale is any number, 0 and negative ones too.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: undo the last division, add the new keys, divide again. In units of which maximum is each of the sums?
"""

import torch

inf = float("inf")


def _exp_diff(a, b):
    """exp(a - b), and 0 where a is -inf, whatever b is."""
    return torch.where(a == -inf, torch.zeros_like(a), torch.exp(a - b))


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    # line 9, 10: scores and mask
    S_ij = scale * (Q_i @ K_j.transpose(0, 1))
    if hidden is not None:
        S_ij = torch.where(hidden, torch.full_like(S_ij, -inf), S_ij)

    # line 10: the tile alone
    m_tilde = S_ij.amax(dim=1)
    P_tilde = _exp_diff(S_ij, m_tilde[:, None])
    l_tilde = P_tilde.sum(dim=1)

    # line 11: the new statistics
    m_new = torch.maximum(m_i, m_tilde)
    a = _exp_diff(m_i, m_new)
    b = _exp_diff(m_tilde, m_new)
    l_new = a * l_i + b * l_tilde

    # dropout
    if keep is not None:
        P_tilde = P_tilde.masked_fill(~keep, 0) / (1 - dropout_p)

    # line 12: O
    divisor = l_new.masked_fill(l_new == 0, 1)
    O_new = ((l_i * a)[:, None] * O_i + P_tilde @ V_j) / divisor[:, None]
    return O_new, l_new, m_new
