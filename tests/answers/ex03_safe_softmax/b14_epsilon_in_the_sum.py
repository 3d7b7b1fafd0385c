# kind: one mistake
# what: an epsilon of 1e-5 is added to every row's sum against division by zero; the sum has to be left as it is (only rows of -inf need care)
# shows: every row: it sums to 1 - 1e-5/sum, wrong in the fifth or sixth digit; plain in float64, most where one score dominates
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

EPSILON = 1e-5      # same as Vector3.kEpsilon


def safe_softmax(S):
    """The softmax of each row of S."""
    biggest, _ = torch.max(S, dim=-1)
    biggest = torch.where(biggest == -inf, torch.zeros_like(biggest), biggest)
    weights = torch.exp(S - biggest.unsqueeze(-1))
    total = torch.sum(weights, dim=-1) + EPSILON
    return weights / total.unsqueeze(-1)
