# kind: right
# what: small pure helpers: masked scores, a rescale factor, then numerator and denominator as two running totals, divided at the end
# shows: rows without a visible key are caught with torch.where (0, never NaN), negative and zero scale are masked after scaling, inputs untouched
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


def _masked_scores(Q_i, K_j, scale, hidden):
    scores = scale * torch.matmul(Q_i, K_j.transpose(0, 1))
    if hidden is None:
        return scores
    return torch.where(hidden, torch.full_like(scores, -inf), scores)


def _exp_or_zero(x, reference):
    """exp(x - reference), but 0 wherever x is -inf (also if the reference is -inf as well)."""
    return torch.where(x == -inf, torch.zeros_like(x), torch.exp(x - reference))


def _apply_dropout(weights, keep, dropout_p):
    if keep is None:
        return weights
    return torch.where(keep, weights / (1.0 - dropout_p), torch.zeros_like(weights))


def _safe_divide(numerator, denominator):
    empty = (denominator == 0).unsqueeze(1)
    return torch.where(empty, torch.zeros_like(numerator), numerator / denominator.unsqueeze(1))


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    scores = _masked_scores(Q_i, K_j, scale, hidden)

    block_max, _ = scores.max(dim=1)
    new_max = torch.where(block_max > m_i, block_max, m_i)

    weights = _exp_or_zero(scores, new_max.unsqueeze(1))
    old_total = l_i * _exp_or_zero(m_i, new_max)            # the old sum in the new unit
    new_total = old_total + weights.sum(dim=1)

    numerator = O_i * old_total.unsqueeze(1)
    numerator = numerator + _apply_dropout(weights, keep, dropout_p) @ V_j
    return _safe_divide(numerator, new_total), new_total, new_max
