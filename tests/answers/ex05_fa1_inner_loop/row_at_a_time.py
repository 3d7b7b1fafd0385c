# kind: right
# what: the step for one query row at a time, with ifs for the rows that see nothing; results go into clones
# shows: -inf is never subtracted from -inf, dropout leaves l alone, the hidden keys are cut out after the scaling

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
    O_new, l_new, m_new = O_i.clone(), l_i.clone(), m_i.clone()

    for r in range(Q_i.shape[0]):
        s = (K_j @ Q_i[r]) * scale                       # (B_c,)
        v = V_j
        kept = None if keep is None else keep[r]
        if hidden is not None:
            seen = ~hidden[r]
            if not seen.any():
                continue                                 # nothing new for this query
            s, v = s[seen], v[seen]
            kept = None if kept is None else kept[seen]

        m = s.max()
        if m_i[r] > m:
            m = m_i[r]
        p = torch.exp(s - m)
        old = l_i[r] * torch.exp(m_i[r] - m)             # 0 if there was no key before
        l = old + p.sum()

        if kept is not None:
            p = torch.where(kept, p / (1 - dropout_p), torch.zeros_like(p))

        O_new[r] = (old * O_i[r] + p @ v) / l
        l_new[r] = l
        m_new[r] = m

    return O_new, l_new, m_new
