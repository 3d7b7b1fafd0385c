# kind: two mistakes
# what: (1) rows with any hidden key become zeros, it should be rows with all keys hidden; (2) the result lies in a default float32 buffer, should be S's dtype
# shows: (1) a row with some but not all -inf; (2) float64 input: dtype float32 comes back

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
    P = torch.zeros(N_q, N_k)
    dead = (S == -inf).any(dim=1)
    for i in range(N_q):
        if dead[i]:
            continue            # stays zero
        e = (S[i] - S[i].max()).exp()
        P[i] = e / e.sum()
    return P
