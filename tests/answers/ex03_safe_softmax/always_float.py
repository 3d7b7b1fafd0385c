# kind: one mistake
# what: everything is done in float32 and cast back at the end; for float64 scores the digits beyond the seventh are lost (should stay in S's dtype)
# shows: float64 S with scores in the hundreds: errors of 1e-5 instead of 1e-15
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
    X = S.float()                                          # accumulate in fp32
    m = X.max(dim=1, keepdim=True)[0]
    m = torch.where(m == -inf, torch.zeros_like(m), m)
    e = torch.exp(X - m)
    z = e.sum(dim=1, keepdim=True)
    z = torch.where(z == 0, torch.ones_like(z), z)
    return (e / z).to(S.dtype)
