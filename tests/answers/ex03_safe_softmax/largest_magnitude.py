# kind: one mistake
# what: the shift is the largest |score| of the row's visible keys instead of its largest score
# shows: rows in which a large negative score outweighs the positive ones (-300 alone, or -200 and 1): exp(-600) = 0, the row is lost

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
    size = torch.where(S == -inf, torch.zeros_like(S), S.abs())
    m = size.max(dim=1, keepdim=True).values
    P = torch.exp(S - m)
    l = P.sum(dim=1, keepdim=True)
    l[l == 0] = 1.0
    return P / l
