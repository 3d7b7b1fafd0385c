# kind: point missed
# what: nothing is folded: every score is multiplied by scale, kept in natural units with a natural m, and again by log2(e) inside each exp2; the stub asks for one factor that each score meets once and an m_i in base 2
# shows: O and L are right; the two multiplications per score and the natural m_i are in the loop

"""ex12_exp2 · attention in powers of two

Chapter 12 · difficulty 2 of 5 · 20 minutes

A GPU has an instruction for 2^x and none for e^x. Write the loop of FlashAttention-2 for one query block so that it knows base 2
alone, with the scale and log2(e) folded into one factor that each score meets once.

    exp(scale · s − m) = 2^(factor · s − m')        factor = scale · log2(e)        m' = m · log2(e), the maximum in base 2

    Q (N_q, d), K (N_k, d), V (N_k, d_v)   ->   O (N_q, d_v)        L (N_q,), the natural logarithm of the sum of exponentials

All tensors are float32, or all are float64; O and L have their dtype. scale is greater than 0, each scaled score lies between
−1000 and 1000, every query sees every key, N_k is at least 1, and the last block of keys may be short. LOG2_E is log2(e).
A block has at most B_c keys: no tensor of scores may have N_k columns. The factor may go into Q instead, before the loop.

Not allowed: a tensor of N_q by N_k, torch.exp, torch.log and their kin (torch.exp2, torch.log2 and 2 ** x are the point), a
library's softmax or attention, the finished function from flashlab or solutions/.

Hint: keep m_i in base 2 from the first block to the last. Only L has to leave it, at the end.
"""

import torch

LOG2_E = 1.4426950408889634
inf = float("inf")


def natural_exp(x):
    return torch.exp2(x * LOG2_E)


def attend(Q, K, V, scale, B_c):
    """(O, L) of all queries in Q, walking the keys in blocks of B_c."""
    N_q, N_k = len(Q), len(K)
    m = torch.full((N_q, 1), -inf, dtype=Q.dtype)
    l = torch.zeros((N_q, 1), dtype=Q.dtype)
    O = torch.zeros((N_q, V.shape[1]), dtype=Q.dtype)
    for start in range(0, N_k, B_c):
        stop = min(start + B_c, N_k)
        S = Q @ K[start:stop].T * scale
        m_new = torch.maximum(m, S.max(dim=1, keepdim=True).values)
        P = natural_exp(S - m_new)
        alpha = natural_exp(m - m_new)
        l = l * alpha + P.sum(dim=1, keepdim=True)
        O = O * alpha + P @ V[start:stop]
        m = m_new
    return O / l, (m + torch.log2(l) / LOG2_E)[:, 0]
