# kind: right
# what: the factor goes into a scaled copy of Q, torch.split makes the blocks, the sum's column rides along as a column of ones beside V
# shows: float32 and float64, short last block, B_c > N_k, one key; only base 2 is used, no tensor of scores wider than B_c
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


def attend(Q, K, V, scale, B_c):
    """(O, L) of all queries in Q, walking the keys in blocks of B_c."""
    q = Q * (scale * LOG2_E)
    m = Q.new_full((Q.shape[0], 1), -inf)
    acc = Q.new_zeros(Q.shape[0], V.shape[1] + 1)                 # O, and in its last column l
    for K_j, V_j in zip(K.split(B_c), V.split(B_c)):
        V_1 = torch.cat([V_j, V_j.new_ones(V_j.shape[0], 1)], dim=1)
        s = q @ K_j.mT
        m_new = torch.maximum(m, s.amax(dim=1, keepdim=True))
        acc = acc * torch.exp2(m - m_new) + torch.exp2(s - m_new) @ V_1
        m = m_new
    l = acc[:, -1:]
    O = acc[:, :-1] / l
    L = (m + torch.log2(l)) / LOG2_E
    return O, L[:, 0]
