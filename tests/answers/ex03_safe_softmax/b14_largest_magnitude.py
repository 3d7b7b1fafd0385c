# kind: one mistake
# what: shifts by the largest absolute value of the visible scores in a row ("with either sign"); it has to be the largest score, with its sign
# shows: rows with a very negative score: all scores near -300, or one at -500 next to one at 0: every exp is 0
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
    hidden = S == -inf
    size = S.abs().masked_fill(hidden, 0)             # how large do the numbers get, plus or minus
    shift = size.max(dim=1, keepdim=True)[0]
    p = torch.exp(S - shift)
    total = p.sum(dim=1, keepdim=True)
    return torch.where(total == 0, torch.zeros_like(p), p / total)
