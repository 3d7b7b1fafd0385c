# kind: right
# what: works in place on a copy; the maximum is clamped to the smallest finite number, the sum to at least 1
# shows: a visible row's sum is at least 1 (its largest term is exp(0)), so the clamp touches only rows that are -inf throughout; dtype is S's

"""ex03_safe_softmax · softmax that does not overflow

Chapter 03 · difficulty 1 of 5 · 10 minutes

The softmax of each row, written with max, exp and sum alone (not with torch.softmax).

    S (N_q, N_k), float32 or float64   ->   P (N_q, N_k) in S's dtype, each row sums to 1

    m_i = max over j of S_ij        P_ij = exp(S_ij − m_i) / sum over j of exp(S_ij − m_i)

Scores may be in the hundreds, with either sign, and -inf for a hidden key. A row that is -inf throughout gives zeros.

Not allowed: changing the inputs, torch.softmax, torch.logsumexp and their like, the finished function from flashlab or
solutions/.

Hint: in float32 exp(89) is inf and exp(−104) is 0. The shift makes the largest exponent of each row exactly 0.
"""

import torch


def safe_softmax(S):
    """The softmax of each row of S."""
    P = S.clone()
    P -= P.amax(dim=1, keepdim=True).clamp_(min=torch.finfo(S.dtype).min)
    P.exp_()
    P /= P.sum(dim=1, keepdim=True).clamp_(min=1)
    return P
