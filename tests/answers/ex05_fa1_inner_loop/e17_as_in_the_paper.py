# kind: right
# what: the paper's Algorithm 1: m̃, P̃ and l̃ of the block by itself, then both sides brought to m_new
# shows: rows without a key shift by 0 (helper `finite`) and divide by 1; dropout after l̃, scaled by 1/(1-p)
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


def finite(m):
    return torch.where(m == -inf, torch.zeros_like(m), m)


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    S = (Q_i @ K_j.T) * scale
    if hidden is not None:
        S = S.masked_fill(hidden, -inf)

    # the block by itself: m̃, P̃, l̃
    m_t = S.amax(dim=1)
    P_t = torch.exp(S - finite(m_t)[:, None])
    l_t = P_t.sum(dim=1)

    # both in units of m_new
    m_new = torch.maximum(m_i, m_t)
    old = torch.exp(m_i - finite(m_new)) * l_i
    new = torch.exp(m_t - finite(m_new))
    l_new = old + new * l_t

    if keep is not None:
        P_t = P_t * keep / (1 - dropout_p)
    numerator = old[:, None] * O_i + new[:, None] * (P_t @ V_j)
    O_new = numerator / torch.where(l_new > 0, l_new, torch.ones_like(l_new))[:, None]
    return O_new, l_new, m_new
