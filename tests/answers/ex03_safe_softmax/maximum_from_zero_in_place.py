# kind: two mistakes
# what: the maximum starts at 0, so rows whose scores are all far below 0 underflow to zeros; and S -= m changes the input
# shows: a row with scores around -200 (zeros instead of weights); any S with a positive score (S is different afterwards)

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


def safe_softmax(S):
    """The softmax of each row of S."""
    m = torch.zeros(S.shape[0], 1, dtype=S.dtype)
    for j in range(S.shape[1]):
        m = torch.maximum(m, S[:, j:j + 1])
    S -= m
    E = torch.exp(S)
    l = E.sum(dim=1, keepdim=True)
    return torch.where(l == 0, torch.zeros_like(E), E / l)
