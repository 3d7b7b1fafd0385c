# kind: two mistakes
# what: (1) the hand-written maximum starts at 0, so an all-negative row is shifted by 0; (2) the shift `S[i] -= m` changes the input
# shows: (1) rows whose scores all lie below about -104 (float32): zeros instead of a softmax; (2) any row with a positive score, compare S before and after
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
    n_rows, n_cols = S.shape
    P = torch.zeros_like(S)
    for i in range(n_rows):
        # largest number of the row
        m = 0.0
        for j in range(n_cols):
            if S[i, j].item() > m:
                m = S[i, j].item()
        S[i] -= m
        l = 0.0
        for j in range(n_cols):
            P[i, j] = torch.exp(S[i, j])
            l += P[i, j].item()
        if l > 0:
            P[i] /= l
    return P
