# kind: right
# what: thinks in shares: the old output keeps the share alpha·l / l_new, each new weight is p / l_new; column vectors throughout
# shows: rows without a visible key so far: shift 0, divisor 1, O stays 0; l is summed before dropout; nothing is changed in place
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
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: undo the last division, add the new keys, divide again. In units of which maximum is each of the sums?
"""

import torch

inf = float("inf")


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    l_old, m_old = l_i.unsqueeze(1), m_i.unsqueeze(1)                  # (B_r, 1)

    s = scale * torch.einsum("rd,cd->rc", Q_i, K_j)
    if hidden is not None:
        s = torch.where(hidden, -inf, s)

    m_new = torch.cat([m_old, s], dim=1).amax(dim=1, keepdim=True)
    shift = torch.where(torch.isinf(m_new), 0.0, m_new)
    old = l_old * torch.exp(m_old - shift)
    p = torch.exp(s - shift)
    l_new = old + p.sum(dim=1, keepdim=True)

    whole = torch.where(l_new > 0, l_new, 1.0)
    p = p / whole
    if keep is not None:
        p = torch.where(keep, p / (1.0 - dropout_p), 0.0)
    O_new = (old / whole) * O_i + p @ V_j
    return O_new, l_new.squeeze(1), m_new.squeeze(1)
