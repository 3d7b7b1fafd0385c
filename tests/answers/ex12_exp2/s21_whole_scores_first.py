# kind: point missed
# what: makes all scores at once, a tensor of N_q by N_k, and walks over slices of it; each block's scores belong in the loop
# shows: every call with N_k > B_c: the numbers are right, the forbidden tensor is there
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
    N_q, N_k = len(Q), len(K)
    S = torch.matmul(Q, K.transpose(0, 1)) * (scale * LOG2_E)

    m_i = torch.full((N_q, 1), -inf, dtype=Q.dtype)
    l_i = torch.zeros((N_q, 1), dtype=Q.dtype)
    O_i = torch.zeros((N_q, V.shape[1]), dtype=Q.dtype)
    for start in range(0, N_k, B_c):
        end = min(start + B_c, N_k)
        S_ij = S[:, start:end]
        m_new = torch.maximum(m_i, S_ij.max(dim=1, keepdim=True).values)
        P_ij = torch.exp2(S_ij - m_new)
        correction = torch.exp2(m_i - m_new)
        l_i = l_i * correction + P_ij.sum(dim=1, keepdim=True)
        O_i = O_i * correction + P_ij @ V[start:end]
        m_i = m_new
    L = (m_i + torch.log2(l_i)) / LOG2_E
    return O_i / l_i, L[:, 0]
