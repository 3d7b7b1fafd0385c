# kind: right
# what: one buffer of its own, worked on in place; a row that is -inf throughout is divided by 1
# shows: S is cloned first; a row with a finite score has a sum of at least 1, so clamp touches only the rows that are -inf throughout
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

inf = float("inf")


def safe_softmax(S):
    """The softmax of each row of S."""
    P = S.clone()
    m = P.amax(dim=1, keepdim=True)
    m[m == -inf] = 0
    P.sub_(m).exp_()
    P.div_(P.sum(dim=1, keepdim=True).clamp_(min=1))
    return P
