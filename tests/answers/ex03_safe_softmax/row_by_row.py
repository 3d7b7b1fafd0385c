# kind: right
# what: one row after the other, a row with nothing visible keeps the zeros it was born with
# shows: max, exp and sum of each row, result in S's dtype; only own buffers are written

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
    N_q, N_k = S.shape
    P = torch.zeros_like(S)
    for i in range(N_q):
        row = S[i]
        m = row.max()
        if m == -inf:
            continue
        total = 0.0
        for j in range(N_k):
            e = torch.exp(row[j] - m)
            P[i, j] = e
            total = total + e
        for j in range(N_k):
            P[i, j] = P[i, j] / total
    return P
