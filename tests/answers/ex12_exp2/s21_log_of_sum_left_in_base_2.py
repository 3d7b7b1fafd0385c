# kind: one mistake
# what: L converts the maximum to base e but adds log2(l_i) as it is; both terms should be divided by LOG2_E
# shows: L with two keys or more that share the weight (l_i above 1); one key, l_i = 1, hides it; O is right
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
    N_q, N_k = Q.shape[0], K.shape[0]
    factor = scale * LOG2_E
    m_i = torch.full((N_q,), -inf, dtype=Q.dtype)
    l_i = torch.zeros(N_q, dtype=Q.dtype)
    O_i = torch.zeros(N_q, V.shape[1], dtype=Q.dtype)
    for j in range(0, N_k, B_c):
        K_j, V_j = K[j:j + B_c], V[j:j + B_c]
        S_ij = Q @ K_j.T * factor
        m_new = torch.maximum(m_i, S_ij.max(dim=1).values)
        P_ij = torch.exp2(S_ij - m_new[:, None])
        alpha = torch.exp2(m_i - m_new)
        l_i = alpha * l_i + P_ij.sum(dim=1)
        O_i = alpha[:, None] * O_i + P_ij @ V_j
        m_i = m_new
    O = O_i / l_i[:, None]
    L = m_i / LOG2_E + torch.log2(l_i)
    return O, L
