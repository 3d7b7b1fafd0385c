# kind: one mistake
# what: 1e-6 is added to every row's sum so that a row of -inf does not divide by 0; no row sums to 1 any more. Only a sum of 0 should be replaced
# shows: float64: relative error of up to 1e-6 in every row; float32: rows where one weight is 1 become 0.999999
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
EPS = 1e-6


def safe_softmax(S):
    """The softmax of each row of S."""
    S_max = S.max(dim=-1, keepdim=True).values
    S_max = torch.nan_to_num(S_max, neginf=0.0)
    numerator = (S - S_max).exp()
    denominator = numerator.sum(dim=-1, keepdim=True) + EPS       # never divide by zero
    return numerator / denominator
