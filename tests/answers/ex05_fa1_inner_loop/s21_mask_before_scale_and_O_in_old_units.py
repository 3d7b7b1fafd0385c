# kind: two mistakes
# what: (1) -inf is put in before the product with scale, which makes it +inf or NaN; (2) O_i * l_i is not converted by exp(m_i - m_new) before the new keys are added
# shows: (1) hidden given and scale negative or 0; (2) without a mask: a row with keys before, whose maximum grows in this block
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


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    scores = Q_i @ K_j.T
    if hidden is not None:
        scores = scores.masked_fill(hidden, -inf)
    scores = scores * scale

    m = torch.maximum(m_i, scores.max(dim=1)[0])
    shift = torch.where(m == -inf, 0.0, m)
    P = torch.exp(scores - shift[:, None])
    l = l_i * torch.exp(m_i - shift) + P.sum(dim=1)

    if keep is not None:
        P = torch.where(keep, P / (1 - dropout_p), 0.0)
    O = O_i * l_i[:, None] + P @ V_j                      # undo the last division, add the new keys
    O = O / torch.where(l == 0, 1.0, l)[:, None]
    return O, l, m
