# kind: right
# what: in place on the shifted copy; m is kept finite, and l is clamped at 1, which a row with a score always reaches
# shows: S - m is a new tensor, so S is not changed; a row of -inf gives exp(-inf) = 0 over 1
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


def safe_softmax(S):
    """The softmax of each row of S."""
    m = S.amax(-1, keepdim=True).clamp_(min=torch.finfo(S.dtype).min)
    P = S - m
    P.exp_()
    l = P.sum(-1, keepdim=True).clamp_(min=1)       # the largest score alone gives exp(0) = 1
    return P.div_(l)
