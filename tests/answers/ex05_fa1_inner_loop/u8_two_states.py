# kind: right
# what: makes the key block's own finished little softmax first, then mixes old O_i and new one by their shares of l
# shows: negative scale, rows without a visible key before or in the block, dropout, hidden None
"""ex05_fa1_inner_loop · the inner step of FlashAttention-1

Chapter 05 · difficulty 4 of 5 · 35 minutes

FA1 keeps a key block on chip and lets the query blocks pass. Each step takes O_i, l_i, m_i from HBM, adds one key block and
puts them back. O_i is normalised at all times: it is the attention over the keys seen so far.

    Q_i (B_r, d)   K_j (B_c, d)   V_j (B_c, d_v)   O_i (B_r, d_v)   l_i, m_i (B_r,)   ->   O_i, l_i, m_i, new ones

m_i is the largest score of each row so far, l_i the sum of exp(score − m_i); the softmax is that of Q_i Kᵀ · scale over the
keys that are not hidden. A row may have no visible key yet (m_i = -inf, l_i = 0): its O_i stays 0.
hidden is True where a query must not see a key; None means that nothing is hidden.
Dropout acts on the finished weights: those where keep is False become 0, the others are divided by 1 − dropout_p. l_i is the
sum without dropout. Either keep is given and 0 < dropout_p < 1, or keep is None, dropout_p is 0, and nothing is dropped.
Scores lie between −1000 and 1000; scale is any finite number, 0 and negative ones too.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: undo the last division, add the new keys, divide again. In units of which maximum is each of the sums?
"""

import torch

inf = float("inf")


def _exp_diff(a, b):
    """exp(a − b) where a ≤ b, 0 where a is -inf."""
    return torch.where(a == -inf, torch.zeros_like(a), torch.exp(a - torch.where(b == -inf, torch.zeros_like(b), b)))


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    S = torch.mm(Q_i, K_j.t()).mul(scale)
    if hidden is not None:
        S = torch.where(hidden, torch.full_like(S, -inf), S)
    m_j = S.max(dim=1)[0]
    P = _exp_diff(S, m_j.unsqueeze(1).expand_as(S))
    l_j = P.sum(dim=1)
    if keep is not None:
        P = torch.where(keep, P / (1.0 - dropout_p), torch.zeros_like(P))

    m_new = torch.maximum(m_i, m_j)
    a = _exp_diff(m_i, m_new)
    b = _exp_diff(m_j, m_new)
    l_new = a * l_i + b * l_j
    inv = 1.0 / torch.where(l_new > 0, l_new, torch.ones_like(l_new))
    O_new = (a * l_i * inv)[:, None] * O_i + (b * inv)[:, None] * (P @ V_j)
    return O_new, l_new, m_new
