# kind: one mistake
# what: the block's own maximum is "cleaned" from -inf to 0 before it is compared with m_i; it should stay -inf (only the subtraction needs a finite number)
# shows: a row whose keys in this block are all hidden: m_i comes back as max(m_i, 0) instead of m_i (0 instead of -inf, 0 instead of -7; l and O die for m_i = -500)

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


def get_scores(Q_i, K_j, scale, hidden):
    scores = torch.matmul(Q_i, K_j.transpose(0, 1)) * scale
    return scores if hidden is None else scores.masked_fill(hidden, -inf)


def get_block_max(scores):
    """Row maximum with a sane default for rows without data."""
    block_max = scores.max(dim=1).values
    return torch.where(torch.isinf(block_max), torch.zeros_like(block_max), block_max)


def apply_dropout(weights, keep, dropout_p):
    if keep is None:
        return weights
    return weights * keep / (1.0 - dropout_p)


def safe_divide(numerator, denominator):
    is_empty = denominator == 0
    return numerator / torch.where(is_empty, torch.ones_like(denominator), denominator).unsqueeze(1)


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    scores = get_scores(Q_i, K_j, scale, hidden)
    m_new = torch.maximum(m_i, get_block_max(scores))

    old_weight = l_i * torch.exp(m_i - m_new)
    new_weights = torch.exp(scores - m_new.unsqueeze(1))
    l_new = old_weight + new_weights.sum(dim=1)

    unnormalised = old_weight.unsqueeze(1) * O_i + apply_dropout(new_weights, keep, dropout_p) @ V_j
    return safe_divide(unnormalised, l_new), l_new, m_new
