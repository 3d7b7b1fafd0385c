# kind: one mistake
# what: shifts by the largest magnitude of a row, |S|, instead of its largest score: the exponents of a negative row all underflow
# shows: rows with scores of -100 and below (and rows with both signs where the negative ones are larger): zeros or NaN
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
    size = S.abs().masked_fill(S == -inf, 0)               # hidden keys are not the largest
    m = size.max(dim=-1, keepdim=True).values
    E = torch.exp(S - m)
    Z = E.sum(dim=-1, keepdim=True)
    hidden_row = (S == -inf).all(dim=-1, keepdim=True)
    return torch.where(hidden_row, torch.zeros_like(S), E / Z)
