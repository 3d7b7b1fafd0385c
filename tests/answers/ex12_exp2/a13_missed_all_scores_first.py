# kind: point missed
# what: all scores are computed before the loop, which then walks over slices of this N_q by N_k tensor; a block of scores should be made of one block of keys, inside the loop
# shows: the numbers are right; with N_k > B_c a tensor with N_k columns exists, which the stub forbids
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
    S = (Q @ K.T) * (scale * LOG2_E)         # one matmul is faster than many small ones
    m = torch.full_like(Q[:, 0], -inf)
    l = torch.zeros_like(m)
    O = torch.zeros(Q.shape[0], V.shape[1], dtype=Q.dtype)
    for j in range(0, K.shape[0], B_c):
        S_j = S[:, j:j + B_c]
        m_new = torch.max(m, S_j.max(dim=1).values)
        alpha = torch.exp2(m - m_new)
        P_j = torch.exp2(S_j - m_new[:, None])
        l = l * alpha + P_j.sum(dim=1)
        O = O * alpha[:, None] + P_j @ V[j:j + B_c]
        m = m_new
    return O / l[:, None], (m + torch.log2(l)) / LOG2_E
