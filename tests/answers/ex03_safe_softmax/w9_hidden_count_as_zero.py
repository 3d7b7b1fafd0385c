# kind: one mistake
# what: the maximum is taken after hidden keys were filled with 0, so a hidden key can be the largest; it should leave them out
# shows: float32, a row with a hidden key whose other scores are all below about -104: exp underflows, the row is zeros instead of its softmax

"""ex03_safe_softmax · softmax that does not overflow

Chapter 03 · difficulty 1 of 5 · 10 minutes

The softmax of each row, written by hand: its maximum, exp, sum and quotient, not torch.softmax. Whatever else a row of -inf
needs is free: where, masked_fill, clamp, indexing with a mask.

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
    hidden = S == -inf
    T = torch.where(hidden, 0.0, S)
    m = T.amax(dim=-1, keepdim=True)
    P = torch.exp(T - m)
    P = torch.where(hidden, 0.0, P)
    l = P.sum(dim=-1, keepdim=True)
    return P / torch.where(l == 0, 1.0, l)
