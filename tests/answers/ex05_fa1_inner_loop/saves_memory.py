# kind: one mistake
# what: O_i, l_i and m_i are worked on in place (mul_, add_, copy_), so the caller's tensors change; inputs are to be left as they are
# shows: every call: the returned numbers are right, but O_i, l_i, m_i that went in are overwritten
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
    S = (Q_i @ K_j.T).mul_(scale)
    if hidden is not None:
        S[hidden] = -inf

    m_new = torch.maximum(m_i, S.amax(dim=1))
    shift = m_new.clone()
    shift[shift == -inf] = 0
    alpha = (m_i - shift).exp_()
    P = (S - shift[:, None]).exp_()

    l_i.mul_(alpha)
    O_i.mul_(l_i[:, None])                                 # back to an undivided sum, in the new units
    l_i.add_(P.sum(dim=1))
    if keep is not None:
        P = P * keep / (1 - dropout_p)
    O_i.add_(P @ V_j)
    O_i.div_(torch.where(l_i == 0, 1, l_i)[:, None])
    m_i.copy_(m_new)
    return O_i, l_i, m_i
