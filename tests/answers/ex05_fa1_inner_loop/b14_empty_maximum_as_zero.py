# kind: one mistake
# what: a maximum of -inf (no key yet) is turned into 0 before the larger of old and new is taken, so the new m is never below 0 in such rows; it should be replaced in the subtraction only
# shows: first block of a row (m_i = -inf) whose scores are all negative: m = 0 and l too small, NaN or 0 far below 0; a row still without a key gets m = 0
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


def no_inf(m):
    return torch.where(m == -inf, torch.zeros_like(m), m)


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    scores = torch.einsum("qd,kd->qk", Q_i, K_j) * scale
    if hidden is not None:
        scores = torch.where(hidden, torch.full_like(scores, -inf), scores)

    m_old = no_inf(m_i)
    m_blk = no_inf(scores.max(dim=-1).values)
    m_new = torch.maximum(m_old, m_blk)

    weights = torch.exp(scores - m_new[:, None])
    old_sum = l_i * torch.exp(m_old - m_new)
    l_new = old_sum + weights.sum(dim=-1)

    if keep is not None:
        weights = weights.masked_fill(~keep, 0.0) / (1.0 - dropout_p)
    numerator = old_sum[:, None] * O_i + weights @ V_j
    divisor = torch.where(l_new == 0, torch.ones_like(l_new), l_new)
    return numerator / divisor[:, None], l_new, m_new
