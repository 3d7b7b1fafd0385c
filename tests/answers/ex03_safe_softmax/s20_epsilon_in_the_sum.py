# kind: one mistake
# what: 1e-6 is added to the sum so that a hidden row does not divide by 0; every other row then sums to less than 1. The divisor should be changed only where it is 0
# shows: any row in float64 (1e-6 off), and float32 where the sum is near 1 (1e-6, eight roundings)

"""ex03_safe_softmax · softmax that does not overflow

Chapter 03 · difficulty 1 of 5 · 10 minutes

The softmax of each row, written by hand: its maximum, exp, sum and quotient, not torch.softmax. Whatever else a row of -inf
needs is free: where, masked_fill, clamp, indexing with a mask.

    S (N_q, N_k), float32 or float64   ->   P (N_q, N_k) in S's dtype, each row sums to 1

    m_i = max over j of S_ij        P_ij = exp(S_ij − m_i) / sum over j of exp(S_ij − m_i)

Scores may be in the hundreds, with either sign, and -inf for a hidden key. A row that is -inf throughout gives zeros.
No size is 0.

Not allowed: changing the inputs, torch's softmax, log_softmax, logsumexp and their like, the finished function from flashlab
or solutions/.

Hint: in float32 exp(89) is inf and exp(−104) is 0. The shift makes the largest exponent of each row exactly 0.
"""

import torch

inf = float("inf")

eps = 1e-6


def safe_softmax(S):
    """The softmax of each row of S."""
    m = torch.amax(S, dim=1)
    m = torch.where(torch.isinf(m), torch.zeros_like(m), m)
    num = torch.exp(S - m[:, None])
    den = num.sum(dim=1) + eps
    return num / den[:, None]
