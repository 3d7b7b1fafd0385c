# kind: one mistake
# what: guards the division with + 1e-6 in every row, so no row sums to 1; it should only replace a sum of 0
# shows: all float64 inputs, and float32 rows with one dominant score: P is 1 - 1e-6 there, about 8 roundings off

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
    m = S.max(dim=-1, keepdim=True)[0]
    m = m.masked_fill(m == -inf, 0.0)
    num = torch.exp(S - m)
    den = num.sum(dim=-1, keepdim=True) + 1e-6      # no division by zero for empty rows
    return num / den
