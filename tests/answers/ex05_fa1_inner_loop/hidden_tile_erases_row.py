# kind: one mistake
# what: O is set to 0 for rows that see no key of this tile, it should be only for rows that have seen no key at all (l_new = 0)
# shows: a row with all of this tile hidden and keys seen in earlier tiles (l_i > 0): its O is lost

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


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    S = torch.einsum("rd,cd->rc", Q_i, K_j) * scale
    if hidden is not None:
        S[hidden] = -inf
    m = torch.maximum(m_i, S.amax(1))
    m_safe = m.clamp(min=-1e30)                      # -inf minus -inf would be NaN
    alpha = (m_i - m_safe).exp()
    P = (S - m_safe[:, None]).exp()
    l = alpha * l_i + P.sum(1)
    if keep is not None:
        P = keep * P / (1.0 - dropout_p)
    O = (O_i * (alpha * l_i)[:, None] + P @ V_j) / l.clamp(min=1e-30)[:, None]
    if hidden is not None:
        O[hidden.all(dim=1)] = 0.0                   # no visible key: O stays 0
    return O, l, m
