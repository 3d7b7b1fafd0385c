# kind: one mistake
# what: L = m_i + log2(l_i) / log2 e: the sum's logarithm leaves base 2, the maximum does not; both should be divided by log2 e
# shows: L wherever the largest score of a query is not 0; O is right
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
    qk_scale = scale * LOG2_E
    N_k = K.shape[0]
    m_i = torch.full((Q.shape[0],), -inf, dtype=Q.dtype)
    l_i = torch.zeros(Q.shape[0], dtype=Q.dtype)
    acc = torch.zeros(Q.shape[0], V.shape[1], dtype=Q.dtype)
    for start_n in range(0, N_k, B_c):
        k = K[start_n : start_n + B_c]
        v = V[start_n : start_n + B_c]
        qk = Q @ k.T
        m_ij = torch.maximum(m_i, torch.max(qk, 1).values * qk_scale)
        qk = qk * qk_scale - m_ij[:, None]
        p = torch.exp2(qk)
        alpha = torch.exp2(m_i - m_ij)
        l_i = l_i * alpha + p.sum(1)
        acc = acc * alpha[:, None] + p @ v
        m_i = m_ij
    O = acc / l_i[:, None]
    L = m_i + torch.log2(l_i) / LOG2_E          # natural logarithm of the sum, plus the maximum
    return O, L
