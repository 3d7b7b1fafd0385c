# kind: one mistake
# what: the old values are shrunk by 2^((m_old − m_new)·log2(e)); m is in base 2 already, so it is 2^(m_old − m_new)
# shows: two or more blocks with a larger score in a later one
"""ex12_exp2 · attention in powers of two

Chapter 12 · difficulty 2 of 5 · 20 minutes

A GPU has an instruction for 2^x and none for e^x. Write the loop of FlashAttention-2 for one query block so that it knows base 2
alone, with the scale and log2(e) folded into one factor that each score meets once.

    exp(scale · s − m) = 2^(factor · s − m')        factor = scale · log2(e)        m' = m · log2(e), the maximum in base 2

    Q (N_q, d), K (N_k, d), V (N_k, d_v)   ->   O (N_q, d_v)        L (N_q,), the natural logarithm of the sum of exponentials

All tensors are float32, or all are float64; O and L have their dtype. scale is greater than 0, each scaled score lies between
−1000 and 1000, every query sees every key, N_k is at least 1, and the last block of keys may be short. LOG2_E is log2(e).
A block has at most B_c keys: no tensor of N_k columns may appear.

Not allowed: a tensor of N_q by N_k, torch.exp, torch.log and their kin (torch.exp2 and torch.log2 are the point), a library's
softmax or attention, the finished function from flashlab or solutions/.

Hint: keep m_i in base 2 from the first block to the last. Only L has to leave it, at the end.
"""

import torch

LOG2_E = 1.4426950408889634
inf = float("inf")


def attend(Q, K, V, scale, B_c):
    """(O, L) of all queries in Q, walking the keys in blocks of B_c."""
    factor = scale * LOG2_E
    m = torch.full((Q.shape[0], 1), -inf, dtype=Q.dtype)
    l = torch.zeros_like(m)
    acc = torch.zeros(Q.shape[0], V.shape[1], dtype=Q.dtype)
    for lo in range(0, K.shape[0], B_c):
        hi = min(lo + B_c, K.shape[0])
        s = (Q @ K[lo:hi].T) * factor
        m_new = torch.maximum(m, s.max(dim=1, keepdim=True).values)
        p = torch.exp2(s - m_new)
        correction = torch.exp2((m - m_new) * LOG2_E)       # exp(x) = 2^(x · log2 e)
        l = l * correction + p.sum(dim=1, keepdim=True)
        acc = acc * correction + p @ V[lo:hi]
        m = m_new
    O = acc / l
    L = (m + torch.log2(l)).squeeze(1) / LOG2_E
    return O, L
