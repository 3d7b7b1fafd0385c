# kind: right
# what: numpy-like with keepdim; an empty row is shifted by 0 and divided by 1
# shows: every row has its own shift; -inf minus a finite shift is -inf, exp gives 0; dtype kept, S untouched

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
    m, _ = torch.max(S, dim=1, keepdim=True)
    m = torch.where(m > -inf, m, torch.zeros_like(m))
    E = torch.exp(S - m)
    l = torch.sum(E, dim=1, keepdim=True)
    return E / torch.where(l > 0, l, torch.ones_like(l))
