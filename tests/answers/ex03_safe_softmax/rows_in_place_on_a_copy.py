# kind: right
# what: starts from zeros, takes each row that has a visible key, and fills in its visible places only
# shows: hidden places and empty rows simply stay 0; the steps in place work on a row's own copy, not on S

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


def _softmax_of(scores):
    """A vector of finite scores."""
    e = scores.clone()
    e -= scores.max()
    e.exp_()
    e /= e.sum()
    return e


def safe_softmax(S):
    """The softmax of each row of S."""
    P = torch.zeros_like(S)
    for i in range(S.shape[0]):
        seen = S[i] != -inf
        if seen.any():
            P[i, seen] = _softmax_of(S[i, seen])
    return P
