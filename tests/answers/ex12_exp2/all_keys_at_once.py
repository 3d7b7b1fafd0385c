# kind: point missed
# what: one matrix of all scores and one base-2 softmax over it; B_c is never used, no loop over blocks of keys
# shows: O and L are right; the score matrix is (N_q, N_k) however small B_c is
"""ex12_exp2 · attention in powers of two

Chapter 12 · difficulty 2 of 5 · 20 minutes

A GPU has an instruction for 2^x and none for e^x. Write the loop of FlashAttention-2 for one query block so that it knows base 2
alone, with the scale and log2(e) folded into one factor that each score meets once.

    exp(scale · s − m) = 2^(factor · s − m')        factor = scale · log2(e)        m' = m · log2(e), the maximum in base 2

    Q (N_q, d), K (N_k, d), V (N_k, d_v)   ->   O (N_q, d_v)        L (N_q,), the natural logarithm of the sum of exponentials

All tensors are float32, or all are float64; O and L have their dtype. scale is greater than 0, each scaled score lies between
−1000 and 1000, every query sees every key, N_k is at least 1, and the last block of keys may be short. LOG2_E is log2(e).

Not allowed: torch.exp, torch.log and their kin (torch.exp2 and torch.log2 are the point), a library's softmax or attention,
the finished function from flashlab or solutions/.

Hint: keep m_i in base 2 from the first block to the last. Only L has to leave it, at the end.
"""


import torch

LOG2_E = 1.4426950408889634
inf = float("inf")


def softmax_base_2(exponents):
    """(weights, log2 of their sum before dividing)."""
    highest = exponents.amax(dim=-1, keepdim=True)
    powers = torch.exp2(exponents - highest)
    total = powers.sum(dim=-1, keepdim=True)
    return powers / total, (highest + torch.log2(total)).squeeze(-1)


def attend(Q, K, V, scale, B_c):
    """(O, L) of all queries in Q, walking the keys in blocks of B_c."""
    factor = scale * LOG2_E
    weights, log2_sum = softmax_base_2(Q @ K.T * factor)
    return weights @ V, log2_sum / LOG2_E
